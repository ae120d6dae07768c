// The past as pictures: a lane's seats in pieces, each drawn once and then only added to as steps come.

const FEWEST_KEPT = 32; // pieces a lane; some 25 MB with 64 seats and two pixels a point

export class SeatTiles {
  #tiles = new Map(); // number → piece; the longest unused first
  #spare = []; // pieces of another zoom: a canvas is dear to make, and a wheel asks for many
  #key = "";

  /** Puts the pieces that `scale` shows on `target`.  `begin(context)` draws an empty one, `go(context, number, state)`
   * what isn't in it yet; `state` is the piece's own, and once it `isWhole` nothing more comes. */
  paint(target, scale, look, { begin, go }) {
    const key = `${scale.key} ${look.key}`;
    if (key !== this.#key) this.clear();
    this.#key = key;
    const numbers = scale.tiles;
    for (const number of numbers) {
      const tile = this.#tiles.get(number) ?? this.#begun(scale, begin);
      this.#tiles.delete(number);
      this.#tiles.set(number, tile);
      if (!tile.state.isWhole) go(tile.context, number, tile.state);
      target.drawImage(tile.picture, number * scale.tilePx - scale.left, 0);
    }
    this.#forgetAllBut(Math.max(FEWEST_KEPT, 2 * numbers.length));
  }

  clear() {
    this.#spare = [...this.#tiles.values()];
    this.#tiles.clear();
  }

  #begun(scale, begin) {
    const spare = this.#spare.pop();
    const { picture, context } = spare?.picture.height === scale.seatsHeight ? spare : newPiece(scale);
    begin(context);
    return { picture, context, state: { isWhole: false, last: null, drawnTo: -Infinity, marked: new Map() } };
  }

  #forgetAllBut(count) {
    for (const number of this.#tiles.keys()) {
      if (this.#tiles.size <= count) return;
      this.#tiles.delete(number);
    }
  }
}

function newPiece(scale) {
  const picture = document.createElement("canvas");
  picture.width = scale.tilePx;
  picture.height = scale.seatsHeight;
  return { picture, context: picture.getContext("2d", { alpha: false }) };
}
