// What the browser keeps for a person: choices for good, the key for the tab.  A browser may be set to keep nothing, and
// then throws at the very mention of its storage; a page forgets then when it is closed, and works.

/** `{ get(), set(value) }` of one item; `area`: "localStorage" or "sessionStorage".  `null` is no value. */
export function kept(area, name) {
  let own = null; // where the browser keeps nothing
  return {
    get() {
      try {
        return window[area].getItem(name) ?? own;
      } catch {
        return own;
      }
    },
    set(value) {
      own = value;
      try {
        if (value === null) window[area].removeItem(name);
        else window[area].setItem(name, value);
      } catch {
        // it is kept in `own`
      }
    },
  };
}
