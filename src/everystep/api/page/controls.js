export function mountControls(root, app) {}
