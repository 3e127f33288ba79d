// The search of the site runs in a worker, and browsers start none for pages opened from a disk (file://).
// There this stands in for it: the same script in a frame that nobody sees, its messages handed on.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.documentElement.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.ready = new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script");
        script.src = address;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`no worker at ${address}`));
        this.inner.document.head.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
