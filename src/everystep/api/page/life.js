export function mountLife(root, app) {}
