export function mountFigures(root, app) {}
