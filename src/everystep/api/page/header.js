export function mountHeader(root, app) {}
