// The page, put together: who draws what, and where.

import { mountControls } from "./controls.js";
import { el, show } from "./dom.js";
import { mountFigures } from "./figures.js";
import { mountHeader } from "./header.js";
import { mountLife } from "./life.js";
import { mountLine } from "./line.js";
import { Live } from "./live.js";
import { mountNotices } from "./notices.js";
import { mountSeats } from "./seats.js";
import { Server } from "./server.js";
import { Store } from "./store.js";
import { mountTry } from "./trying.js";
import { View } from "./view.js";
import { language } from "./words.js";

/** What every part is given.  "store" is told when another store is shown: the live one, or a recording's. */
class App extends EventTarget {
  constructor() {
    super();
    this.server = new Server();
    this.view = new View();
    this.liveStore = new Store({ isLive: true });
    this.live = new Live(this.server, this.liveStore, this.view);
    this.store = this.liveStore;
    this.view.store = this.liveStore;
  }

  show(store) {
    if (store === this.store) return;
    this.store = store;
    this.view.store = store;
    if (store.isLive) this.view.follow();
    this.dispatchEvent(new Event("store"));
  }
}

/** A section for each lane of the store that is shown, made anew when the store or its lanes are others. */
function mountLanes(root, app) {
  let shownStore = null;
  let shownLanes = "";
  let gone = new AbortController();
  const build = () => {
    const policies = [...app.store.lanes.keys()];
    if (app.store === shownStore && policies.join() === shownLanes) return;
    shownStore = app.store;
    shownLanes = policies.join();
    gone.abort(); // what the sections before listened to
    gone = new AbortController();
    show(root, ...policies.map((policy) => laneSection(app, policy, gone.signal)));
  };
  const listen = () => {
    for (const event of ["reset", "steps"]) app.store.addEventListener(event, build);
    build();
  };
  app.addEventListener("store", listen);
  listen();
}

/** `signal` ends what the section listens to. */
function laneSection(app, policy, signal) {
  const seats = el("div", { class: "seats" });
  const line = el("div", { class: "line" });
  const section = el("section", { class: "lane", "data-policy": policy, "aria-label": policy }, seats, line);
  mountSeats(seats, app, policy, signal);
  mountLine(line, app, policy);
  return section;
}

function start() {
  document.documentElement.lang = language();
  const app = new App();
  const noteState = () => (document.body.dataset.state = app.live.state); // a locked page has nothing to show, see base.css
  app.live.addEventListener("state", noteState);
  noteState();
  const part = (tag, name) => el(tag, { id: name });
  const parts = {
    header: part("header", "header"),
    notices: part("div", "notices"),
    try: part("section", "try"),
    controls: part("div", "controls"),
    lanes: part("main", "lanes"),
    figures: part("section", "figures"),
    life: part("dialog", "life"),
  };
  document.body.append(...Object.values(parts));
  mountHeader(parts.header, app);
  mountNotices(parts.notices, app);
  mountTry(parts.try, app);
  mountFigures(parts.figures, app);
  mountControls(parts.controls, app);
  mountLanes(parts.lanes, app);
  mountLife(parts.life, app);
  app.live.run();
}

start();
