// One drawing a frame for everything that moves, and none while nothing changes or nobody looks.

const painters = new Map(); // root → paint and whether it is on the screen
let isAsked = false;

const NEAR_SCREEN = { rootMargin: "1000px" };

const screen_ = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const painter = painters.get(target);
    if (painter === undefined) continue;
    painter.isSeen = isIntersecting;
    if (isIntersecting) repaint();
  }
}, NEAR_SCREEN);

/** `paint()` is called in the next frame, and from then on in each after a `repaint()`; it is over once `root` is gone. */
export function paintWith(root, paint) {
  painters.set(root, { paint, isSeen: true });
  screen_.observe(root);
  repaint();
}

/** Something changed. */
export function repaint() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(paintFrame);
}

function paintFrame() {
  isAsked = false;
  for (const [root, painter] of painters) {
    if (!root.isConnected) {
      painters.delete(root);
      screen_.unobserve(root);
    } else if (painter.isSeen) {
      painter.paint();
    }
  }
}
