export function mountTry(root, app) {}
