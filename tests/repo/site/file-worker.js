// The search runs in a worker, which browsers refuse to pages of file:. There, a hidden frame runs its script instead.
// Each side changes what it gets, so it gets a copy, as from a worker.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inner = this.frame.contentWindow;
      this.inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = this.inner.document.createElement("script");
      this.ready = new Promise((resolve) => (script.onload = resolve));
      script.onerror = (error) => this.onerror?.(error);
      script.src = new URL(address, location.href);
      this.inner.document.body.append(script);
    }
    postMessage(data) {
      this.ready.then(() => this.inner.onmessage?.({ data: structuredClone(data) }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
