export function mountSeats(root, app, policy) {}
