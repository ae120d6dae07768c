export function mountNotices(root, app) {}
