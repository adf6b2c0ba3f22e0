// Open one notebook in a running JupyterLab, run it from top to bottom, and report what went wrong.
//   node lab.mjs URL TOKEN NOTEBOOK CHROMIUM [SCREENSHOT]
import { chromium } from 'playwright-core';

const [url, token, notebook, executablePath, shot] = process.argv.slice(2);
const quiet = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const browser = await chromium.launch({ executablePath, args: quiet });
const page = await browser.newPage({ viewport: { width: 1300, height: 1000 } });
const errors = [];
page.on('pageerror', e => errors.push(e.message));

await page.goto(`${url}/lab/tree/${notebook}?token=${token}&reset`);
await page.waitForSelector('.jp-Notebook .jp-Cell', { timeout: 90000 });
// What is run before the kernel is there opens a dialog instead: wait for the session, then for an idle kernel.
await page.waitForFunction(async () => {
  const session = window.jupyterapp?.shell?.currentWidget?.sessionContext;
  if (!session) return false;
  await session.ready;
  return session.session?.kernel?.connectionStatus === 'connected' && session.session.kernel.status === 'idle';
}, null, { timeout: 120000, polling: 500 });
await page.locator('.lm-MenuBar-itemLabel', { hasText: /^Run$/ }).first().click();
await page.locator('.lm-Menu-itemLabel', { hasText: /^Run All Cells$/ }).click();

// Done when the last code cell has a number (every cell that is run gets one), or when one fails.
const outcome = await page.waitForFunction(() => {
  const model = window.jupyterapp?.shell?.currentWidget?.content?.model;
  if (!model) return null;
  const cells = [...Array(model.cells.length).keys()].map(i => model.cells.get(i)).filter(c => c.type === 'code');
  const outs = c => [...Array(c.outputs.length).keys()].map(i => c.outputs.get(i).toJSON());
  const mayFail = c => (c.getMetadata('tags') ?? []).includes('raises-exception');  // a task that is not done yet
  const failed = cells.flatMap((c, i) => mayFail(c) ? [] : outs(c).filter(o => o.output_type === 'error').map(o => `code cell ${i + 1}: ${o.ename}: ${o.evalue}`));
  const full = cells.filter(c => c.sharedModel.getSource().trim());
  return failed.length || full.at(-1)?.executionCount ? { failed, ran: full.filter(c => c.executionCount).length, of: full.length } : null;
}, null, { timeout: 300000, polling: 500 }).then(h => h.jsonValue());

if (shot) await page.screenshot({ path: shot });
await browser.close();
console.log(JSON.stringify({ notebook, ...outcome, pageErrors: errors }));
process.exit(outcome.failed.length || errors.length || outcome.ran < outcome.of ? 1 : 0);
