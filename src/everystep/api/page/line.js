export function mountLine(root, app, policy) {}
