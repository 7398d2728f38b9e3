#include "lapse/data/config.h"

#include "lapse/data/unit.h"

namespace lapse {

Fields DataConfig::fields(const std::function<bool()>& makes_vocabulary) {
  const auto counted = [this, makes_vocabulary] {
    return unit_named(unit).counted && (!makes_vocabulary || makes_vocabulary());
  };
  const auto cut = [this] { return corrupts_spans(); };
  return {
      field("path", path,
            "one text file, plain or gzip, cut by `split` into training, validation and test parts. A relative path in "
            "a configuration is looked for beside it, then in the working directory; after --set, in the working "
            "directory")
          .path(),
      field("train", train_path, "training text, where each part is a file of its own; leave `path` empty then").path(),
      field("valid", valid_path, "validation text, with `train`; may be left out").path(),
      field("test", test_path, "test text, with `train`; may be left out").path(),
      field("unit", unit,
            "what one token is: a byte (reads any file), a UTF-8 character, a word between white space (each line end "
            "is one more), or a piece of `tokenizer` (subword; reads any file). t5: a piece of a published T5's model, "
            "which normalises the text; for span_corruption only")
          .one_of(unit_names()),
      field("tokenizer", tokenizer,
            "for subwords: the file of a SentencePiece model, as `lapse tokenizer train` makes it; for t5: that of a "
            "published T5, spiece.model. A run keeps a copy; with train.from that of the run to go on from is read")
          .path(),
      field("split", split, "fractions of `path` for training, validation and test; their sum is 1").used_if([this] {
        return !path.empty();
      }),
      field("min_count", min_count,
            "characters and words rarer than this in the training text become the unknown token (bits per byte count "
            "8 for each byte of them, and of the white space before such a word). With train.from the vocabulary is "
            "that run's")
          .in(1)
          .unit("occurrences")
          .used_if(counted),
      field("max_vocabulary", max_vocabulary,
            "keep at most this many characters or words, the most frequent, counting the special tokens; 0 = no limit. "
            "With train.from the vocabulary is that run's")
          .in(0)
          .unit("tokens")
          .used_if(counted),
      field("windows", windows,
            "read the text as independent windows of train.block tokens, each starting from empty memory with a token "
            "of its own (BOS, the last id), instead of streams; documents are always read in this way")
          .used_if([this] { return documents == "none"; }),
      field(
          "documents", documents,
          "read each document in a window of its own: BOS and its first train.block tokens; what is shorter is padded, "
          "and padding is neither read, scored nor counted. \"lines\": each line is a document; else markers, as "
          "\"<doc </doc>\": a line that begins with one of them separates documents and belongs to none. \"none\": the "
          "text is not made of documents. With span_corruption stretches reach across documents: only markers, blank "
          "documents and white space at both ends of others are left out"),
      field("objective", objective,
            "what is predicted. next_token: each token from those before it; span_corruption: spans that are cut out "
            "of the text, by a model with an encoder (model.encoder_layers), which reads what is left of it, at most "
            "train.block tokens at a time. The vocabulary then has padding, end and sentinels too")
          .one_of({"next_token", "span_corruption"}),
      field("noise_density", noise_density, "share of the text that span corruption cuts out")
          .in(0.001, 0.9)
          .used_if(cut),
      field("noise_span", noise_span, "mean length of the spans").in(1, 1e6).unit("tokens").used_if(cut),
      field("sentinels", sentinels, "tokens that stand for spans, at most so many at a time")
          .in(1, 1 << 20)
          .used_if(cut),
      field("padded_vocabulary", padded_vocabulary,
            "number of ids in all; unused ones follow the sentinels. 0: there are none. Published T5 have 32128, of "
            "which 32100 are used")
          .in(0, 1 << 24)
          .used_if(cut),
  };
}

}  // namespace lapse
