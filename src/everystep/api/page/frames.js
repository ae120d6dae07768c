// One drawing a frame for everything that moves, and none while nothing changes or nobody looks.

const painters = new Set();
let isAsked = false;

/** `paint()` is called in the next frame, and from then on in each after a `repaint()`; it is over once `root` is gone. */
export function paintWith(root, paint) {
  painters.add({ root, paint });
  repaint();
}

/** Something changed. */
export function repaint() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(frame);
}

function frame() {
  isAsked = false;
  for (const painter of painters) {
    if (painter.root.isConnected) painter.paint();
    else painters.delete(painter);
  }
}
