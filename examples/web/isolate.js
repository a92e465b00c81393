// Registers the service worker, which adds the headers of an isolated page, and reloads the page once to get them. A page
// that is not isolated after that runs on one thread.
(() => {
  const TRIED = 'atta.isolating';
  if (!('serviceWorker' in navigator)) return;
  const registered = navigator.serviceWorker.register('sw.js');
  if (window.crossOriginIsolated) return void sessionStorage.removeItem(TRIED);
  if (sessionStorage.getItem(TRIED)) return;
  registered
    .then(() => navigator.serviceWorker.ready)
    .then(() => {
      sessionStorage.setItem(TRIED, '1');
      location.reload();
    })
    .catch((error) => console.warn(`atta: no service worker, so one thread and no offline use: ${error.message}`));
})();
