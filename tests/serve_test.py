"""`lapse serve` as a process: what its API says against what `lapse inspect` and `lapse generate` say."""

import json
import re
import shutil
import struct
import time
import unittest

from hostile_test import Parts
from program import checkpoints
from serve_client import Server, Session
from serve_runs import RUNS_WITHOUT_A_STREAM, TEXT, Runs


def held_of(session, lane=0):
    """[layer][token]: how many later tokens could read it; None: it is still there."""
    layers = len(session.steps[0]["lanes"][lane])
    held = [[None] * len(session.steps) for _ in range(layers)]
    for step in session.steps:
        for l, (_, _, ended) in enumerate(step["lanes"][lane]):
            for time_of_row, last, *_ in ended:
                held[l][time_of_row] = last - time_of_row
    return held


class Api(Runs):
    def inspect(self, run, text, *arguments):
        """What `lapse inspect` says of a text, of which it predicts the last token."""
        path, page = self.write("part.txt", text + "."), self.folder / "page.html"
        self.succeed("inspect", run, "--data", path, "--split", "all", "-o", page, *arguments, cwd=self.runs)
        return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.S)[1])

    def test_other_clients_find_the_models(self):
        server = self.serve("expire")
        got, said = server.ask("GET", "/v1/models")
        self.assertEqual((got, said), (200, {"object": "list", "data": [{"id": "expire", "object": "model", "owned_by": "lapse"}]}))
        # Agents complete no text.
        self.assertEqual(self.serve("corridor").ask("GET", "/v1/models"), (200, {"object": "list", "data": []}))

    def test_a_stream_says_what_inspect_says(self):
        for run, lane, arguments in (
            ("expire", {}, ()),
            ("expire", {"options": {"max_span": 5}}, ("--max-span", 5)),
            ("expire", {"method": "h2o", "options": {"budget": "8"}}, ("--method", "h2o", "--budget", 8)),
            ("fixed", {}, ()),
            ("selective", {"options": {"budget": 7}}, ("--budget", 7)),
        ):
            data = self.inspect(run, TEXT * 2, *arguments)
            with Session(self.serve(run), lanes=[lane]) as session:
                session.read(TEXT * 2)
                self.assertEqual("".join(step["text"] for step in session.steps), TEXT * 2)
                held = held_of(session)
                for l, layer in enumerate(data["layers"]):
                    self.assertEqual([step["lanes"][0][l][0] for step in session.steps], layer["sizes"])
                    self.assertEqual([h is None for h in held[l]], [bool(x) for x in layer["there"]])
                    for i, (h, known) in enumerate(zip(held[l], layer["held"])):
                        self.assertEqual(len(held[l]) - 1 - i if h is None else h, known, f"{run} row {i}")
                for step, nats in zip(session.steps[1:], data["nats"]):
                    self.assertAlmostEqual(step["bits"][0], nats / 0.693147, delta=2e-3 * max(1, nats))

    def test_it_says_why_rows_went(self):
        with Session(self.serve("expire"), lanes=[{"method": "tova", "options": {"budget": 6}}]) as session:
            session.read(TEXT)
            gone = [row for step in session.steps for _, _, ended in step["lanes"][0] for row in ended]
            self.assertGreater(len(gone), 50)
            for time_of_row, last, why, told, _ in gone:
                self.assertGreaterEqual(told[0], 0)
                if last - time_of_row < 35:  # the longest span, with its ramp
                    self.assertEqual(why, "evicted")
        with Session(self.serve("selective")) as session:
            session.read(TEXT)
            _, row = session.server.get(f"{session.path}/row?t=60")
            layer = row["lanes"][0][0]
            self.assertEqual(len(layer["reads"]), 2)
            self.assertTrue(all(by > 60 for by in layer["raised"][::2]), layer)

    def test_undo_is_exact(self):
        with Session(self.serve("selective")) as session:
            session.read(TEXT * 3)
            before = json.loads(json.dumps(session.steps))
            told = session.server.get(f"{session.path}/told")[1]
            for to in (150, 64, 1, 0):
                self.assertEqual(session.post("undo", to=to)[0], 200)
                session.until("undo")
                session.idle()
                self.assertEqual(len(session.steps), to)
                session.read((TEXT * 3)[to:])
                for now, then in zip(session.steps, before):
                    self.assertEqual((now["bits"], now["lanes"]), (then["bits"], then["lanes"]), f"time {now['t']}")
                self.assertEqual(session.server.get(f"{session.path}/told")[1], told)

    def test_what_it_writes_is_what_generate_writes(self):
        server = self.serve("expire")
        known = self.succeed_json("generate", self.runs / "expire", "--prompt", TEXT, "--tokens", 40, "--temperature", 0, "--remembered")
        status, said = server.post("/v1/completions", prompt=TEXT, max_tokens=40, temperature=0)
        self.assertEqual(status, 200)
        self.assertEqual(said["choices"][0]["text"], known["text"])
        self.assertEqual(said["remembered"], known["remembered"])
        self.assertEqual(said["memory_sizes"], known["memory_sizes"])
        self.assertEqual(said["usage"], {"prompt_tokens": len(TEXT), "completion_tokens": 40, "total_tokens": len(TEXT) + 40})
        status, stream = server.ask("POST", "/v1/completions", {"prompt": TEXT, "max_tokens": 40, "temperature": 0, "stream": True}, raw=True)
        parts = [line[6:] for line in stream.decode().split("\n\n") if line]
        self.assertEqual(parts[-1], "[DONE]")
        self.assertEqual("".join(json.loads(part)["choices"][0]["text"] for part in parts[:-1]), known["text"])
        self.assertEqual(json.loads(parts[-2])["remembered"], known["remembered"])
        with Session(server, temperature=0) as session:
            session.read(TEXT)
            session.play(40)
            self.assertEqual("".join(step["text"] for step in session.steps[len(TEXT) :]), known["text"])
        stop = known["text"][20:24]
        for given in (stop, [stop, "none of it"]):
            asked = {"prompt": TEXT, "max_tokens": 40, "temperature": 0, "stop": given}
            choice = server.post("/v1/completions", **asked)[1]["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (known["text"].split(stop)[0], "stop"))
            stream = server.ask("POST", "/v1/completions", asked | {"stream": True}, raw=True)[1]
            parts = [json.loads(line[6:]) for line in stream.decode().split("\n\n") if line and "DONE" not in line]
            self.assertEqual("".join(part["choices"][0]["text"] for part in parts), known["text"].split(stop)[0])
        for wrong in ("", [""], 3, ["x"] * 17):
            status, said = server.post("/v1/completions", prompt=TEXT, stop=wrong)
            self.assertEqual((status, said["error"]["message"][:5]), (400, "stop:"), wrong)
        drawn = [server.post("/v1/completions", prompt="a", max_tokens=20, seed=5)[1]["choices"][0]["text"] for _ in range(2)]
        self.assertEqual(*drawn)

    def test_runs_that_are_called_the_same(self):
        shutil.copytree(self.runs / "expire", self.runs / "other" / "expire")
        said = self.serve("expire", "other/expire").ask("GET", "/v1/models")[1]
        self.assertEqual([model["id"] for model in said["data"]], ["expire", "other/expire"])
        said = self.serve("expire", "other/expire").post("/v1/completions", model="other/expire", prompt="a", max_tokens=1)
        self.assertEqual((said[0], said[1]["model"]), (200, "other/expire"))
        twice = self.serve("fixed", "fixed").ask("GET", "/v1/models")[1]
        self.assertEqual([model["id"] for model in twice["data"]], ["fixed", "fixed (2)"])

    def test_echoed_words_are_apart(self):
        asked = {"prompt": "the", "max_tokens": 3, "temperature": 0}
        text = self.serve("words").post("/v1/completions", **asked)[1]["choices"][0]["text"]
        echoed = self.serve("words").post("/v1/completions", **asked, echo=True)[1]["choices"][0]["text"]
        self.assertEqual(echoed, f"the {text}")

    def test_a_text_that_fails_half_way_is_no_success(self):
        shutil.copytree(self.runs / "expire", self.runs / "damaged")
        newest = checkpoints(self.runs / "damaged")[0]
        parts = Parts(newest)
        for name in [name for name in parts.tensors if name.startswith("weight.output")]:
            kind, shape, content = parts.tensors[name]
            parts.tensors[name] = [kind, shape, struct.pack("<f", 3e38) * (len(content) // 4)]  # finite, but no logit is
        parts.write(newest)
        server = self.serve("damaged")
        status, said = server.post("/v1/completions", prompt="a", max_tokens=5)
        self.assertEqual((status, said["error"]["code"]), (500, 500))
        self.assertIn("no finite probabilities", said["error"]["message"])
        status, stream = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 5, "stream": True}, raw=True)
        self.assertEqual(status, 200)  # sent before it is known
        self.assertIn(b'"code":500', stream)
        with Session(server) as session:
            self.assertEqual(session.post("read", text="abc")[0], 200)
            session.until("state", lambda state: state["playing"])
            session.idle()
            status, page = server.ask("GET", session.path + "/page")
            self.assertEqual((status, page["error"]["code"]), (500, 500))

    def test_two_lanes_and_settings(self):
        server = self.serve("expire", "fixed")
        with Session(server, lanes=[{"run": 0}, {"run": 1, "options": {}}]) as session:
            session.read(TEXT)
            self.assertEqual([len(step["lanes"]) for step in session.steps], [2] * len(TEXT))
            self.assertTrue(all(h is None or h == 12 for h in held_of(session, 1)[0]))
            session.steps.clear()
            self.assertEqual(session.post("settings", lanes=[{"run": 1, "options": {"max_span": 3}}])[0], 200)
            session.until("begin")
            session.until("state", lambda state: state["playing"])
            session.idle()
            self.assertEqual("".join(step["text"] for step in session.steps), TEXT)
            self.assertTrue(all(h is None or h == 3 for h in held_of(session)[0]))
            self.assertEqual(session.post("settings", lanes=None, temperature=0.5)[0], 200)  # null: the lanes stay
            self.assertEqual(server.ask("GET", session.path + "/page", raw=True)[1].count(b'"--max-span","3"'), 1)
            status, said = session.post("settings", lanes=[{"run": 1, "options": {"budgt": 3}}])
            self.assertEqual(status, 400)
            self.assertIn("lanes[0].options.budgt: ", said["error"]["message"])
            status, page = server.ask("GET", session.path + "/page", raw=True)
            self.assertEqual(status, 200)
            self.assertIn(b'"--max-span","3"', page)

    def test_anew_is_without_text(self):
        with Session(self.serve("expire")) as session:
            self.assertEqual(session.post("read", text=TEXT * 40)[0], 200)
            session.until("steps")
            self.assertEqual(session.post("settings", anew=True)[0], 200)
            session.until("begin")
            session.steps.clear()
            session.read("abc")
            self.assertEqual("".join(step["text"] for step in session.steps), "abc")

    def test_a_run_that_goes_on_is_still_read_in_other_ways(self):
        """Its checkpoint has been removed since: the weights are those of the model that is open."""
        shutil.copytree(self.runs / "expire", self.runs / "gone")
        with Session(self.serve("gone", "--precision", "float32")) as session, Session(self.serve("expire")) as other:
            shutil.rmtree(self.runs / "gone")
            for one in (session, other):
                one.read(TEXT)
                one.steps.clear()
                status, said = one.post("settings", lanes=[{"run": 0, "options": {"max_span": 3}}, {"run": 0, "method": "tova", "options": {"budget": 5}}])
                self.assertEqual(status, 200, said)
                one.until("begin")
                one.until("state", lambda state: state["playing"])
                one.idle()
            self.assertEqual([(step["bits"], step["lanes"]) for step in session.steps], [(step["bits"], step["lanes"]) for step in other.steps])

    def test_tokens_by_number(self):
        server = self.serve("expire")
        with Session(server) as session:
            session.read(TEXT)
            ids = [step["id"] for step in session.steps]
            with Session(server) as other:
                self.assertEqual(other.post("read", ids=ids)[0], 200)
                other.until("state", lambda state: state["playing"])
                other.idle()
                self.assertEqual([step["bits"] for step in other.steps], [step["bits"] for step in session.steps])

    def test_the_options_of_the_command_line(self):
        """What the server was started with is the way in which runs are read, is told so, and stands in the page that can be kept."""
        server = self.serve("expire", "--method", "local", "--budget", 5)
        self.assertFalse(server.get("/api")[1]["as_trained"])
        run = self.serve("expire").get("/api")[1]
        self.assertTrue(run["as_trained"])
        # What another method is read with: the run's own settings, not the program's.
        self.train("sinks", {"sink_window": {"sinks": 9}})
        methods = {one["name"]: {field["name"]: field["value"] for field in one["options"]} for one in self.serve("sinks").get("/api")[1]["runs"][0]["methods"]}
        self.assertEqual(methods["sink_window"]["sinks"], "9")
        self.assertNotIn("selective_attention", methods)
        with Session(server) as session:
            lane = session.until("begin")["lanes"][0]
            self.assertEqual((lane["method"], lane["asked"]), ("local", ""))
            session.read(TEXT)
            self.assertEqual(session.steps[-1]["lanes"][0][0][0], 5)
            self.assertIn(b'"--budget","5"', server.ask("GET", session.path + "/page", raw=True)[1])
            self.assertEqual(session.post("settings", lanes=[{"method": "local"}])[0], 200)  # as that method is by itself
            lane = session.until("begin")["lanes"][0]
            self.assertEqual((lane["method"], lane["asked"]), ("local", "local"))
            session.until("state", lambda state: state["playing"])
            session.idle()
            self.assertGreater(session.steps[-1]["lanes"][0][0][0], 5)

    def test_pause_step_speed(self):
        with Session(self.serve("expire")) as session:
            begin = time.monotonic()
            session.play(10, speed=50)
            self.assertGreater(time.monotonic() - begin, 0.06)
            self.assertEqual(len(session.steps), 10)  # with the line end that it goes on from
            session.post("step")
            session.idle()
            self.assertEqual(len(session.steps), 11)
            session.post("play", speed=0)
            session.until("steps")
            session.post("pause")
            session.idle()
            count = len(session.steps)
            session.post("read", text="abc", hold=True)
            session.until("state", lambda state: state["given"])
            self.assertEqual(len(session.steps), count)
            session.post("step")
            session.idle()
            # What was written before may have been the beginning of a character that "a" does not complete.
            self.assertEqual(session.steps[-1]["text"][-1], "a")

    def test_windows_end(self):
        with Session(self.serve("windows")) as session:
            session.read("x" * 20)
            self.assertTrue(session.steps[0]["bos"])
            status, said = session.post("read", text="y" * 20)
            self.assertEqual(status, 400)
            self.assertIn("reads windows of 32 tokens", said["error"]["message"])
            session.post("play")
            state = session.until("state", lambda state: state["stuck"])
            self.assertIn("window of 32 tokens is full", state["stuck"])
            self.assertIn("1 more does not fit", session.post("read", text="z")[1]["error"]["message"])
            self.assertEqual(len(session.steps), 32)

    def test_a_long_window_read_again_begins_with_bos(self):
        """Of a text that is longer than what is read again the beginning is left out, but not BOS."""
        sizes = {"model": {"layers": 1, "width": 8, "heads": 1, "positions": "absolute"}, "train": {"block": 5200, "batch": 1, "updates": 1, "validate_every": 0}}
        self.train("long", {"data": {"windows": True}, "forgetting": {"method": "local"}, "local": {"window": 8}} | sizes)
        with Session(self.serve("long")) as session:
            session.read("x" * 5100)
            bos, last = session.steps[0]["id"], session.steps[-1]["id"]
            session.steps.clear()
            self.assertEqual(session.post("settings", lanes=[{"run": 0}])[0], 200)
            session.until("begin")
            session.until("state", lambda state: state["playing"])
            session.idle()
            self.assertEqual([step["id"] for step in session.steps], [bos] + [last] * 4999)

    def test_an_agent_plays(self):
        server = self.serve("corridor")
        with Session(server) as session:
            session.play(40)
            self.assertEqual(len(session.steps), 40)
            first = [(step["acts"], step["lanes"]) for step in session.steps]
            self.assertTrue(session.steps[0]["acts"][0]["begins"])
            ends = [step["t"] for step in session.steps if "score" in step["acts"][0]]
            self.assertTrue(ends)
            for end in ends:
                self.assertTrue(all(row[2] == "begun" for _, _, ended in session.steps[end + 1]["lanes"][0] for row in ended if row[0] <= end))
            session.post("undo", to=15)
            session.until("undo")
            session.idle()
            session.play(25)
            self.assertEqual([(step["acts"], step["lanes"]) for step in session.steps], first)
            self.assertEqual(session.post("read", text="a")[0], 409)
            status, row = server.get(session.path + "/row?t=39")
            self.assertEqual((status, row["at"]), (200, 39))
            status, page = server.ask("GET", session.path + "/page", raw=True)
            self.assertIn(b"episode 0", page)

    def test_two_agents_play_the_same_episodes(self):
        server = self.serve("corridor")
        with Session(server, lanes=[{}, {"options": {"max_span": 3}}], seed=7) as session:
            session.play(60)
            for lane in range(2):
                with Session(server, lanes=[[{}], [{"options": {"max_span": 3}}]][lane], seed=7) as alone:
                    alone.play(60)
                    self.assertEqual([(step["acts"][lane], step["lanes"][lane]) for step in session.steps], [(step["acts"][0], step["lanes"][0]) for step in alone.steps])
            begins = [[step["acts"][lane]["sight"] for step in session.steps if step["acts"][lane].get("begins")] for lane in range(2)]
            both = min(map(len, begins))
            self.assertGreater(both, 1)
            self.assertEqual(begins[0][:both], begins[1][:both])
            self.assertEqual(len(session.server.get(session.path + "/row?t=59")[1]["lanes"]), 2)
            session.post("settings", seed=8, greedy=True)
            said = session.until("begin")
            self.assertEqual((said["seed"], said["greedy"], len(said["lanes"])), (8, True, 2))
            session.idle()
            session.play(5)
            # What changes nothing leaves the agents where they are.
            for same in ({}, {"anew": False}, {"seed": 8, "greedy": True, "lanes": [{"run": 0}, {"options": {"max_span": 3}}]}):
                self.assertEqual(session.post("settings", **same), (200, {"time": 5}), same)
            self.assertEqual(session.post("settings", anew=True), (200, {"time": 0}))

    def test_two_agents_of_different_worlds(self):
        """Both act in lane A's, which is said."""
        for name, penalty in (("maze", 1.0), ("other_maze", 0.5)):
            self.train(name, {"data": {"task": "t_maze", "path": ""}, "t_maze": {"length": 4, "penalty": penalty}, "train": {"batch": 8, "updates": 2}})
        server = Server("maze", "other_maze", cwd=self.runs)
        with Session(server, lanes=[{"run": 1}, {"run": 0}]) as session:
            self.assertEqual(session.until("begin")["environment_options"], {"length": 4, "shortest": 0, "penalty": 0.5})
        told = server.stop()[1]
        self.assertIn("note: the runs were trained in environments with other options; side by side both act in lane A's", told)
        self.assertIn('"penalty":0.5', told)
        self.assertNotIn("note:", Server("corridor", "corridor", cwd=self.runs).stop()[1])

    def test_a_closed_tab_frees_what_it_held(self):
        server = self.serve("expire")
        with Session(server) as session:
            session.post("play", speed=0)
            session.until("steps")
            path = session.path
        until = time.monotonic() + 5
        while server.get(path + "/told")[0] == 200 and time.monotonic() < until:
            time.sleep(0.02)
        self.assertEqual(server.get(path + "/told")[0], 404)

    def test_what_it_refuses(self):
        server = self.serve("expire")
        session = Session(server)
        self.addCleanup(session.close)
        for status, method, path, body, words in (
            (404, "GET", "/nothing", None, "there is no GET /nothing"),
            (404, "POST", "/api/sessions/0/play", {}, "there is no such session"),
            (404, "POST", session.path + "/jump", {}, "read, play, pause"),
            (400, "POST", session.path + "/play", {"sped": 1}, "did you mean 'speed'"),
            (400, "POST", session.path + "/undo", {"to": 5}, "no time 5 to go back to"),
            (400, "POST", session.path + "/undo", {}, "to: give how many steps (tokens) are to remain"),
            (400, "GET", session.path + "/row?t=0", None, "there is no time 0 yet; it is 0"),
            (400, "POST", session.path + "/read", {"text": ""}, "has no token"),
            (400, "POST", session.path + "/read", {"ids": [1, 10**6]}, "there is no token 1000000"),
            (400, "POST", session.path + "/read", {"ids": [-1]}, "ids: give a list"),
            (400, "POST", session.path + "/read", {"ids": []}, "ids: give a list"),
            (400, "POST", session.path + "/read", {"ids": [1.5]}, "ids: give a list"),
            (400, "POST", session.path + "/read", {"text": "a", "ids": [1]}, "not both"),
            (400, "POST", "/api/sessions", {"lanes": []}, "one or two"),
            (400, "POST", "/api/sessions", {"lanes": [{"method": "h3o"}]}, "did you mean 'h2o'"),
            (400, "POST", "/api/sessions", {"lanes": [{}, {"options": {"bugdet": 3}}]}, "lanes[1].options.bugdet: expire_span has no such option; it has max_span"),
            (400, "POST", "/api/sessions", {"lanes": [{"method": "tovva"}]}, "(did you mean 'tova'?); a trained run can be read with: local, "),
            (400, "POST", "/api/sessions", {"lanes": [{"method": "h2o", "options": {"budget": -3}}]}, "lanes[0].options.budget"),
            (400, "POST", "/api/sessions", {"lanes": [{"options": {"max_span": []}}]}, "lanes[0].options.max_span: give a number"),
            (400, "POST", "/api/sessions", {"lanes": [{"run": 1}]}, "there is no run 1"),
            (400, "POST", "/api/sessions", {"temperature": "hot"}, "temperature: give a number"),
            (400, "POST", "/v1/completions", {"max_tokens": 10**9}, "max_tokens: give a whole number of 1 ... 4096"),
            (400, "POST", "/v1/completions", b"[" * 5000, "nested too deeply"),
            (400, "POST", "/v1/completions", b"{", "no JSON"),
            (400, "GET", session.path + "/row?t=-1", None, "give the time of a token"),
            (409, "GET", session.path + "/page", None, "nothing to export yet"),
            (409, "GET", session.path + "/events", None, "read already"),
        ):
            got, said = server.ask(method, path, body)
            self.assertEqual(got, status, said)
            self.assertIn(words, said["error"]["message"])
        self.refuse("serve", self.runs / "expire", "--host", "0.0.0.0", says="give a --token")
        for token in ("geheimnißß", "open sesame", "sesame\x7f12"):
            self.refuse("serve", self.runs / "expire", "--token", token, says="--token: give ASCII letters")
        self.refuse("serve", self.runs / "expire", self.runs / "corridor", says="act in the same environment")
        self.refuse("serve", self.runs / "expire", "--port", server.port, says="cannot listen")

    def test_a_token_is_asked_for(self):
        server = Server("expire", "--host", "0.0.0.0", "--token", "open-sesame+1", cwd=self.runs)
        try:
            self.assertTrue(server.address.endswith("#token=open-sesame%2B1"))
            self.assertEqual(server.get("/api")[0], 401)
            self.assertEqual(server.get("/%61pi")[0], 400)
            for scheme in ("Bearer", "bearer", "BEARER"):
                self.assertEqual(server.ask("GET", "/api", headers={"Authorization": f"{scheme} open-sesame+1"})[0], 200)
            self.assertEqual(server.ask("GET", "/", raw=True)[0], 200)
        finally:
            self.assertEqual(server.stop()[2], 0)

    def test_runs_without_a_stream_are_refused(self):
        for name, words in (("labels", ["collision", "asks for labels"]), ("encoder", ["a model with an encoder fills in gaps"])):
            self.train(name, RUNS_WITHOUT_A_STREAM[name])
            self.refuse("serve", self.runs / name, says=words)
            self.refuse("serve", self.runs / "expire", self.runs / name, says=words)


if __name__ == "__main__":
    unittest.main()
