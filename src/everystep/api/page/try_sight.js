// On a narrow screen a run and what it took don't fit at once: the lanes come into sight when it begins, the report when
// it ends.  Whoever moves the page in between stays where they are.

const NARROW = "(max-width: 899px)"; // as in seats.css
const STILL_PX = 4; // texts that grow above the lanes shift them by parts of a pixel

export class TrySight {
  #lanesTop = null; // in the window, when they came into sight

  constructor(panel) {
    this.panel = panel;
  }

  begin() {
    if (!matchMedia(NARROW).matches) return;
    document.getElementById("lanes").scrollIntoView();
    this.#lanesTop = lanesTop();
  }

  end() {
    const isWatching = this.#lanesTop !== null && Math.abs(lanesTop() - this.#lanesTop) < STILL_PX;
    this.#lanesTop = null;
    if (isWatching) this.panel.scrollIntoView();
  }
}

function lanesTop() {
  return document.getElementById("lanes").getBoundingClientRect().top;
}
