"""The live page in a headless Chromium: what it shows is what the daemon says, and what is clicked or typed is done. One
browser serves all tests. Whatever a page logs as wrong fails its test, above all a violation of its content security
policy."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path[1:1] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent)]
from browser import Browser  # noqa: E402
from harness import BIN, MIB, TENANT, Lines, SoftGpuTest, Tenant, wait_for  # noqa: E402

TOKEN = "the-token-of-the-tests"
CTRL = 2


class PageTest(SoftGpuTest):
    CONFIG = '[swap]\nsize = "2G"\nfloor = "1G"\n'

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.pages = []

    def tearDown(self):
        errors = []
        for page in self.pages:
            page.evaluate("1")  # what was logged before has arrived then
            errors += page.errors
            page.close()
        super().tearDown()
        self.assertEqual(errors, [])

    # ---- pages ----

    def relay(self, *flags, program=BIN / "tessera", prefix=()):
        """The address that `tessera page` says."""
        child = self.spawn(*prefix, program, "page", "--json", "--run-dir", self.run_dir, *flags)
        lines, text = Lines(child), ""
        while "}" not in text:
            text += lines.next() or self.fail(child.stderr.read())
        return json.loads(text)["address"]

    def open(self, address=None, width=1280, height=900, scheme="light"):
        page = self.browser.page(address or self.relay(), width, height, scheme)
        self.pages.append(page)
        return page

    @staticmethod
    def row(name, kind="vgpus"):
        """JavaScript for the row of a vGPU or process."""
        return f"[...document.querySelectorAll('#{kind} .row')].find((row) => row.querySelector('strong').textContent.startsWith({json.dumps(name)}))"

    def button(self, name, word, kind="vgpus"):
        return f"[...{self.row(name, kind)}.querySelectorAll('button')].find((each) => each.textContent.startsWith({json.dumps(word)}))"

    def shows(self, page, name, text, kind="vgpus"):
        return page.wait(f"{self.row(name, kind)}.innerText.replaceAll('\\u00a0', ' ').includes({json.dumps(text)})", f"{text!r} in the row of {name}")

    def focused_row(self, page):
        return page.evaluate("document.activeElement.closest('.row')?.querySelector('strong').textContent")


class Steering(PageTest):
    def test_clicks_act_and_the_page_shows_it(self):
        self.start_daemon(config=self.CONFIG)
        self.create("web", compute_limit=60, memory_limit="1G", goal="p99=20ms")
        self.create("batch")
        # A program's name is anybody's choice.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-hostile-"))
        self.addCleanup(shutil.rmtree, folder)
        hostile = folder / "<b id=x>hi"
        shutil.copy(TENANT, hostile)
        tenant = Tenant(self.run_in("web", hostile, "--memory", "256M"))
        tenant.until("ready")
        page = self.open()
        self.shows(page, "web", "320 MiB of 1 GiB")
        self.shows(page, "web", "p99=20ms")
        self.shows(page, "web", "to 60 %")
        self.shows(page, str(tenant.pid), "<b id=x>hi", "processes")
        page.wait("document.querySelector('#events').innerText.includes('<b id=x>hi')", "the program's start")
        self.assertIsNone(page.evaluate("document.getElementById('x')"), "the name became an element")
        self.assertIn("you are an operator", page.text("header"))

        page.click(self.button("web", "Freeze"))
        self.shows(page, "web", "frozen: operator")
        self.assertEqual(self.vgpu("web")["frozen"], ["operator"])
        page.wait("document.querySelector('#toasts').innerText.includes('web is frozen')")
        page.wait("document.querySelector('#events').innerText.includes('vgpu.frozen')")
        page.click(self.button("web", "Thaw"))
        wait_for("the thaw", lambda: "operator" not in self.vgpu("web")["frozen"])
        page.wait(f"!{self.row('web')}.innerText.includes('frozen')")

        page.click(self.button(str(tenant.pid), "Freeze", "processes"))
        self.shows(page, str(tenant.pid), "frozen: operator", "processes")
        page.click(self.button(str(tenant.pid), "Thaw", "processes"))
        wait_for("the process's thaw", lambda: "operator" not in self.managed()[0]["frozen"])
        tenant.makes_progress()

        self.set_by_clicks(page)

        # It comes back when it is used: the program stands still meanwhile.
        self.api("POST", "/v1/vgpus/web/freeze", {})
        page.click(self.button("web", "Evict"))
        page.wait("document.querySelector('#evict-dialog').open")
        page.click("document.querySelector('#evict-dialog .main')")
        wait_for("the memory to be out", lambda: self.vgpu("web")["memory_swap_current_bytes"] == 256 * MIB)
        self.shows(page, "web", "256 MiB in host memory")
        self.api("POST", "/v1/vgpus/web/thaw", {})
        tenant.makes_progress()
        # What was seen of it is in the picture: some colour of a freeze is there.
        page.wait("""(() => { const canvas = document.querySelector('#timeline');
            const probe = document.createElement('canvas').getContext('2d');
            probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--frozen'); probe.fillRect(0, 0, 1, 1);
            const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) return true;
            return false; })()""", "a freeze in the timeline")

    def set_by_clicks(self, page):
        page.click(self.button("web", "Set"))
        page.wait("document.querySelector('#set-dialog').open")
        field = "document.querySelector('#set-dialog [name={}]')"
        self.assertEqual(page.evaluate(field.format("memory_limit") + ".value"), "1G")
        self.assertEqual(page.evaluate(field.format("compute_limit") + ".value"), "60")
        for name, text in (("compute_limit", "200"), ("goal", "none"), ("compute_priority", "5")):
            page.click(field.format(name))
            page.key("a", CTRL)
            page.evaluate("document.activeElement.select()")
            page.type(text)
        page.click("document.querySelector('#set-dialog .main')")
        page.wait("document.querySelector('#set-dialog .error').textContent.includes('compute')", "the daemon's refusal")
        self.assertEqual(self.vgpu("web")["compute_priority"], 8, "nothing of a refused change is done")
        page.click(field.format("compute_limit"))
        page.evaluate("document.activeElement.select()")
        page.type("45")
        page.click("document.querySelector('#set-dialog .main')")
        wait_for("the setting", lambda: self.vgpu("web")["compute_limit_pct"] == 45)
        web = self.vgpu("web")
        self.assertEqual((web["goal"], web["compute_priority"], web["memory_limit_bytes"]), (None, 5, 1 << 30))
        self.shows(page, "web", "to 45 %")
        # Somebody else was quicker.
        page.click(self.button("web", "Set"))
        page.wait("document.querySelector('#set-dialog').open")
        self.change("web", compute_limit=50)
        page.click(field.format("compute_limit"))
        page.evaluate("document.activeElement.select()")
        page.type("40")
        page.key("Enter")
        page.wait("document.querySelector('#set-dialog .error').textContent.length > 10", "the refusal")
        self.assertEqual(self.vgpu("web")["compute_limit_pct"], 50)
        page.key("Escape")
        page.wait("!document.querySelector('#set-dialog').open")

    def test_by_keys_alone(self):
        self.start_daemon(config=self.CONFIG)
        for name in ("a", "b", "c"):
            self.create(name)
        page = self.open()
        page.wait("document.querySelectorAll('#vgpus .row').length === 3")
        page.key("2")
        self.assertEqual(self.focused_row(page), "a")
        page.key("ArrowDown")
        page.key("j")
        self.assertEqual(self.focused_row(page), "c")
        page.key("k")
        self.assertEqual(self.focused_row(page), "b")
        self.assertNotEqual(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none", "the focus is seen")
        page.key("f")
        wait_for("the freeze", lambda: self.vgpu("b")["frozen"] == ["operator"])
        self.shows(page, "b", "frozen: operator")
        self.assertEqual(self.focused_row(page), "b", "drawing anew leaves the focus where it is")
        page.key("Tab")
        self.assertEqual(page.evaluate("document.activeElement.getAttribute('aria-label')"), "Thaw b")
        page.key("Enter")
        wait_for("the thaw", lambda: self.vgpu("b")["frozen"] == [])
        page.key("+")
        wait_for("the priority", lambda: self.vgpu("b")["compute_priority"] == 7)
        page.key("s")
        page.wait("document.activeElement.name === 'compute_request'")
        page.type("25")
        page.key("Enter")
        wait_for("the share", lambda: self.vgpu("b")["compute_request_pct"] == 25)
        page.wait("!document.querySelector('dialog[open]')")
        self.assertEqual(self.focused_row(page), "b", "a dialog gives the focus back")
        page.key("e")
        page.wait("document.querySelector('#evict-dialog').open")
        page.key("Escape")
        page.wait("!document.querySelector('dialog[open]')")
        page.key("?")
        page.wait("document.querySelector('#help-dialog').open")
        page.key("f")
        page.key("Escape")
        page.wait("!document.querySelector('dialog[open]')")
        self.assertEqual(self.vgpu("b")["frozen"], [], "keys in a dialog are the dialog's")
        page.key("Home")
        page.key("Enter")
        page.wait("document.querySelectorAll('#vgpus .row').length === 1", "the first vGPU alone")
        page.key("Escape")
        page.wait("document.querySelectorAll('#vgpus .row').length === 3")
        page.key("/")
        page.type("c")
        page.wait("document.querySelectorAll('#vgpus .row').length === 1", "those that the filter fits")
        page.key("f")
        self.assertEqual([self.vgpu(name)["frozen"] for name in "abc"], [[], [], []], "letters in the filter are text")
        page.key("Escape")
        page.key("3")
        page.key("ArrowLeft")
        page.key("ArrowDown")
        page.wait("/^[0-9:]{8} b: /.test(document.querySelector('#moment').textContent)", "the moment under the cursor")
        before = page.evaluate("getComputedStyle(document.body).color")
        page.key("t")
        page.key("t")
        self.assertNotEqual(page.evaluate("getComputedStyle(document.body).color"), before, "dark, whatever the system has")

    def test_names_and_reasons_are_text_whatever_they_are(self):
        """Most names cannot hold anything; the page does not rely on it. What the daemon says is made hostile on the way."""
        self.start_daemon(config=self.CONFIG)
        self.create("victim", goal="p99=20ms")
        self.create("member", space="lab")
        page = self.open("about:blank")
        page.call("Page.addScriptToEvaluateOnNewDocument", source="""
            const hostile = '"><img src=x onerror="window.taken = 1"><b class=injected>';
            const spoil = (thing) => { for (const key in thing) {
                if (typeof thing[key] === 'string' && !['state', 'verdict', 'mode', 'by', 'version'].includes(key)) thing[key] += hostile;
                else if (typeof thing[key] === 'object' && thing[key]) spoil(thing[key]); } };
            const real = window.fetch;
            window.fetch = async (path, options) => {
                const answer = await real(path, options);
                if (!/overview|timeline/.test(path)) return answer;
                const told = await answer.json();
                for (const gpu of told.gpus ?? []) gpu.health = {failed: true, why: 'x'};
                for (const vgpu of told.vgpus) { vgpu.frozen = ['operator']; vgpu.gang = 'x'; if (vgpu.goal) vgpu.goal.reason = 'x'; }
                if (told.processes) told.processes.push({pid: 7, name: 'x', uid: 0, vgpu: 'x', gpu: 0, enforce: 'none', state: null, frozen: ['move'],
                    memory_bytes: 5, memory_resident_bytes: 5, memory_swapped_bytes: 0, memory_evicting_bytes: 0, evict_error: 'x'});
                spoil(told);
                return new Response(JSON.stringify(told));
            };""")
        page.open(self.relay())
        page.wait("document.querySelector('#processes').innerText.includes('injected')")
        for part in ("#gpus", "#vgpus", "#processes"):
            self.assertIn('<img src=x onerror="window.taken = 1">', page.text(part))
        page.key("2")
        page.key("f")  # the name in the address, and in what is said of it
        page.wait("document.querySelector('#toasts').innerText.includes('injected')")
        page.key("e")
        page.wait("document.querySelector('#evict-title').innerText.includes('injected')")
        self.assertEqual(page.evaluate("[window.taken ?? null, document.querySelectorAll('.injected, main img').length]"), [None, 0])

    def test_the_daemon_goes_and_comes_back(self):
        self.start_daemon(config=self.CONFIG)
        self.create("kept")
        page = self.open()
        page.wait("document.querySelectorAll('#vgpus .row').length === 1")
        page.evaluate("window.same = true")
        self.stop_daemon()
        page.wait("document.querySelector('#notice').innerText.includes('does not answer')", "the notice")
        self.assertIn("kept", page.text("#vgpus"), "what was known is shown still")
        self.start_daemon(config=self.CONFIG)
        self.create("new")
        page.wait("document.querySelector('#notice').hidden", "the notice to go")
        page.wait("document.querySelectorAll('#vgpus .row').length === 2")
        self.create("newer")
        page.wait("document.querySelector('#events').innerText.includes('newer')", "events of the next daemon")
        self.assertTrue(page.evaluate("window.same"), "the page was not loaded again")


class Looks(PageTest):
    SPEC = "8x1GiB"

    def test_64_vgpus_fit_every_screen(self):
        self.start_daemon()
        for i in range(64):
            self.create(f"team-{i:02}", gpu=i % 8, compute_request=10, memory_request="64M", **({"goal": "p99=20ms"} if i % 3 else {}))
        address = self.relay()
        page = self.open(address)
        page.wait("document.querySelectorAll('#vgpus .row').length === 64")
        self.assertEqual(page.evaluate("document.querySelectorAll('#gpus article').length"), 8)
        # What is there already stays: nothing is made anew when a vGPU comes or goes.
        page.evaluate("window.kept = [...document.querySelectorAll('#vgpus .row')]")
        self.create("team-99", gpu=0)
        page.wait("document.querySelectorAll('#vgpus .row').length === 65")
        self.api("DELETE", "/v1/vgpus/team-99")
        page.wait("document.querySelectorAll('#vgpus .row').length === 64")
        self.assertTrue(page.evaluate("kept.every((row, i) => document.querySelectorAll('#vgpus .row')[i] === row)"))
        papers = set()
        for width, height in ((400, 800), (768, 1024), (1280, 800), (1920, 1080), (3840, 2160)):
            for scheme in ("light", "dark"):
                page.look(width, height, scheme)
                with self.subTest(width=width, scheme=scheme):
                    wide = page.evaluate("""[...document.querySelectorAll('body, body *')].filter((node) =>
                        node.checkVisibility() && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
                        .map((node) => node.outerHTML.slice(0, 80))""")
                    self.assertEqual(wide, [])
                    self.assertEqual(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), True)
                    papers.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        self.assertEqual(len(papers), 2, "light and dark")
        self.assertEqual({url.split("/")[2] for url in page.requests}, {address.split("/")[2]}, "nothing comes from elsewhere")


class Tokens(PageTest):
    def test_tcp_asks_for_the_token(self):
        self.start_daemon(config=self.api_by_tcp(TOKEN))
        self.create("secret")
        page = self.open(f"http://127.0.0.1:{self.port}/")
        field = "document.querySelector('#token-dialog input')"
        page.wait("document.querySelector('#token-dialog').open", "the question")
        self.assertNotIn("secret", page.text())
        page.click(field)
        page.type("a-wrong-token-of-somebody")
        page.key("Enter")
        page.wait("document.querySelector('#token-dialog .error').textContent.includes('wrong')", "that it is wrong")
        self.assertNotIn("secret", page.text())
        page.click(field)
        page.type(TOKEN)
        page.key("Enter")
        page.wait("document.querySelector('#vgpus').innerText.includes('secret')")
        page.wait("document.querySelector('#events').innerText.includes('vgpu.created')", "events, whose stream has the token, too")
        self.assertFalse(page.evaluate("document.querySelector('#token-dialog').open"))
        page.call("Page.reload")
        page.wait("document.querySelector('#vgpus').innerText.includes('secret')", "the token to be kept in this tab")
        self.assertEqual(page.evaluate("[localStorage.getItem('tessera.token'), document.cookie]"), [None, ""])
        # Another token is in force from now on.
        (self.run_dir / "token").write_text("another-token-of-the-tests\n")
        self.assertEqual(self.api("POST", "/v1/reload")[0], 200)
        page.wait("document.querySelector('#token-dialog').open", "the question again")

    def test_the_relay_serves_nobody_without_its_token(self):
        self.start_daemon()
        self.create("secret")
        address = self.relay()
        page = self.open(address.split("#")[0])
        page.wait("document.querySelector('#token-dialog').open", "the question")
        self.assertEqual(page.evaluate("fetch('/v1/vgpus').then((answer) => answer.status)"), 401)
        page.close()
        self.pages.remove(page)
        page = self.open(address)
        page.wait("document.querySelector('#vgpus').innerText.includes('secret')")
        self.assertEqual(page.evaluate("location.hash"), "", "the token is not in the address any more")

    @unittest.skipUnless(os.getuid() == 0, "only root can be several users")
    def test_a_user_sees_and_steers_own_vgpus(self):
        build = self.build_for_everybody()
        self.run_dir.chmod(0o755)
        self.start_daemon()
        user = 4242
        self.create("everybodys")
        self.as_user(user, lambda: self.api("POST", "/v1/vgpus", {"name": "mine"})[0])
        self.as_user(4241, lambda: self.api("POST", "/v1/vgpus", {"name": "others"})[0])
        address = self.relay(program=build / "bin/tessera", prefix=("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"))
        page = self.open(address)
        page.wait("document.querySelectorAll('#vgpus .row').length === 2")
        self.assertIn(f"you are user {user}", page.text("header"))
        self.assertNotIn("others", page.text())
        page.click(self.button("mine", "Freeze"))
        wait_for("the freeze", lambda: self.vgpu("mine")["frozen"] == ["operator"])
        page.click(self.button("everybodys", "Freeze"))
        page.wait("document.querySelector('#toasts').innerText.includes('only operators may change it')", "the daemon's refusal")
        self.assertEqual(self.vgpu("everybodys")["frozen"], [])


if __name__ == "__main__":
    unittest.main()
