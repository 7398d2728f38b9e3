"""T5's own pieces: a SentencePiece model that normalises, as published checkpoints of T5 have it, with a vocabulary that is padded."""

import io
import json
import os
import unicodedata
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import sentencepiece
import torch
from program import ProgramTest, english
from t5_test import METHOD, tiny
from transformers import T5ForConditionalGeneration, T5Tokenizer

PIECES, SENTINELS, PADDED = 140, 10, 160
ODD = "Caf\u00e9 \uff21\u00bd\n\tthe\u00a0river \u2603 na\u0131ve.  "  # what is replaced, what no piece has, white space


def spiece():
    """A model as T5's was trained: padding 0, end 1, unknown 2, NFKC with white space made one space, no pieces for bytes."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(english(60000).split("\n")),
        model_writer=made,
        vocab_size=PIECES,
        normalization_rule_name="nmt_nfkc",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return made.getvalue()


class Pieces(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bytes = spiece()
        cls.pieces = sentencepiece.SentencePieceProcessor(model_proto=cls.bytes)

    def setUp(self):
        super().setUp()
        self.model = tiny(5, vocab_size=PADDED)
        with torch.no_grad():  # the ids of padding win nothing, as after training
            self.model.shared.weight[PIECES + SENTINELS :] = 0
        self.theirs, self.run_folder = self.folder / "theirs", self.folder / "run"
        self.model.save_pretrained(self.theirs)
        (self.theirs / "spiece.model").write_bytes(self.bytes)
        self.text = self.write("text.txt", english(30000) + ODD * 40)
        data = {
            "unit": "t5",
            "tokenizer": str(self.theirs / "spiece.model"),
            "objective": "span_corruption",
            "sentinels": SENTINELS,
            "padded_vocabulary": PADDED,
        }
        self.toml = self.config(self.text, METHOD, {"data": data, "train": {"block": 24, "updates": 4}})
        self.importing = ("import", self.theirs, "--config", self.toml, "--out", self.run_folder)

    def imported(self):
        self.succeed(*self.importing)
        return self.run_folder

    def generated(self, source):
        return self.model.generate(torch.tensor([source]), max_new_tokens=16, do_sample=False, use_cache=False)[0].tolist()[1:]

    def test_prompts_are_read_and_filled_as_by_transformers(self):
        tokenizer, run = T5Tokenizer.from_pretrained(self.theirs, extra_ids=SENTINELS), self.imported()
        for prompt in ("The <extra_id_0> of the <extra_id_1> forgets.", "<extra_id_0> remembers", "The <extra_id_0>\u00a0of \u3000 it", f"{ODD}The\nriver <extra_id_0>"):
            done = self.succeed_json("generate", run, "--prompt", prompt, "--temperature", 0, "--tokens", 16)
            source = tokenizer(prompt).input_ids
            self.assertEqual(done["prompt_tokens"], len(source), prompt)
            self.assertEqual(done["tokens"], self.generated(source), prompt)

    def test_a_gap_within_a_word_does_not_begin_another(self):
        """Where transformers puts a space after each sentinel, training with cut out tokens has none."""
        run = self.imported()
        done = self.succeed_json("generate", run, "--prompt", "un<extra_id_0>er.", "--temperature", 0, "--tokens", 16)
        sentinel = PIECES + SENTINELS - 1
        after = [self.pieces.piece_to_id(piece) for piece in ("e", "r", ".")]
        self.assertEqual(done["tokens"], self.generated([*self.pieces.encode("un"), sentinel, *after, 1]))

    def test_what_is_filled_in_is_text(self):
        tokenizer, run = T5Tokenizer.from_pretrained(self.theirs, extra_ids=SENTINELS), self.imported()
        options = ("--temperature", 8, "--seed", 4, "--tokens", 40)
        done = self.succeed_json("generate", run, "--prompt", "<extra_id_0> the river", *options)
        self.assertIn(PIECES + SENTINELS - 1, done["tokens"], "nothing was filled in: this shows nothing; draw with another seed")
        span = done["tokens"][done["tokens"].index(PIECES + SENTINELS - 1) + 1 :]
        end = next((i for i, id in enumerate(span) if id == 1 or id >= PIECES), len(span))
        self.assertGreater(end, 0)
        self.assertEqual(done["text"], tokenizer.decode(span[:end]) + " the river")

    def test_a_text_and_what_it_is_normalised_to_are_read_alike(self):
        run, text = self.imported(), self.text.read_text()
        normal = self.write("normal.txt", " ".join(unicodedata.normalize("NFKC", text).split()))
        self.assertNotEqual(normal.read_text(), text)
        one, other = (self.succeed_json("eval", run, "--data", path, "--split", "all") for path in (self.text, normal))
        self.assertEqual((one["loss"], one["tokens"]), (other["loss"], other["tokens"]))
        self.assertGreater(one["tokens"], 0.15 * len(self.pieces.encode(text)))

    def test_it_goes_on_and_is_exported_with_its_pieces(self):
        run, out = self.imported(), self.folder / "out"
        self.succeed("train", run / "config.toml", "--out", run, "--resume", "--quiet")
        self.assertEqual(self.succeed_json("info", run)["unit"], "t5")
        self.succeed("export", run, "--out", out)
        self.assertEqual((out / "spiece.model").read_bytes(), self.bytes)
        self.assertEqual(json.loads((out / "config.json").read_text())["vocab_size"], PADDED)
        T5ForConditionalGeneration.from_pretrained(out)
        self.assertEqual(len(T5Tokenizer.from_pretrained(out, extra_ids=SENTINELS)), PIECES + SENTINELS)
        for file in ("config.json", "model.safetensors"):
            (out / file).unlink()
        self.refuse("export", run, "--out", out, says="spiece.model")

    def test_another_number_of_ids_cannot_go_on(self):
        run = self.imported()
        more = ("--set", f"train.from={run}", "--set", f"data.padded_vocabulary={PADDED + 8}")
        self.refuse("train", run / "config.toml", "--out", self.folder / "more", *more, says=f"the run to go on from has {PADDED}")

    def test_others_are_refused(self):
        self.refuse(*self.importing, "--set", "data.padded_vocabulary=0", says=f"data.padded_vocabulary = {PADDED} if its last 10 are unused")
        for other in (PADDED - 5, PADDED + 10):
            self.refuse(*self.importing, "--set", f"data.padded_vocabulary={other}", says=f"set data.padded_vocabulary = {PADDED}")
        self.refuse(*self.importing, "--set", "data.padded_vocabulary=149", says="150 ids are used; give at least 150")
        self.refuse(*self.importing, "--set", "data.unit=subword", says="data.unit = \"t5\" reads")
        self.refuse(*self.importing, "--set", "data.tokenizer=none.model", says="give the path of T5's SentencePiece model")
        self.refuse("train", self.toml, "--out", self.run_folder, "--set", "data.objective=next_token", says='data.unit = "t5" is for')
        damaged = bytearray(self.bytes)
        at = bytes(damaged).index(b"nmt_nfkc") + 8 + 5  # behind the name: the table's size in the file, then its first number
        damaged[at + 3 : at + 7] = b"\xff" * 4
        (self.theirs / "spiece.model").write_bytes(damaged)
        self.refuse(*self.importing, says="this SentencePiece model is damaged")
        self.assertFalse(self.run_folder.exists())


if __name__ == "__main__":
    unittest.main()
