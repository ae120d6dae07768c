// The past as pictures: pieces of a lane's seats that won't change any more are drawn once and kept.

const MAX_TILES = 64; // a lane; about 30 MB at 64 seats and two pixels a point

export class SeatTiles {
  #tiles = new Map(); // number → canvas; the longest unused first
  #key = "";

  /** Calls `draw(context, tile)` for a piece that isn't at hand, or isn't whole yet. */
  paint(target, scale, look, wholeUntilPx, draw) {
    const key = `${scale.key} ${look.key}`;
    if (key !== this.#key) this.clear();
    this.#key = key;
    for (const tile of scale.tiles) {
      const picture = this.#tiles.get(tile) ?? this.#drawn(scale, tile, draw);
      this.#tiles.delete(tile);
      target.drawImage(picture, tile * scale.tilePx - scale.left, 0);
      if ((tile + 1) * scale.tilePx <= wholeUntilPx) this.#keep(tile, picture);
    }
  }

  clear() {
    this.#tiles.clear();
  }

  #drawn(scale, tile, draw) {
    const picture = document.createElement("canvas");
    picture.width = scale.tilePx;
    picture.height = scale.seatsHeight;
    draw(picture.getContext("2d"), tile);
    return picture;
  }

  #keep(tile, picture) {
    this.#tiles.set(tile, picture);
    if (this.#tiles.size > MAX_TILES) this.#tiles.delete(this.#tiles.keys().next().value);
  }
}
