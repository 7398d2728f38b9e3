#include <fmt/format.h>

#include <iostream>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/progress.h"
#include "lapse/data/corpus.h"
#include "lapse/data/subword.h"
#include "lapse/data/text.h"

namespace lapse {
namespace {

struct Arguments {
  std::vector<std::string> data;
  std::string out, documents = "none";
  SubwordTraining training;
  double fraction = 1;
  bool quiet = false;
};

int run(const Arguments& arguments) {
  check_out(arguments.out);
  check_apart(arguments.out, "--out", arguments.data);
  check_of_no_run(arguments.out, "--out");
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (const auto& path : arguments.data) {
    require_text(path);
    const Text text = find_documents(read_text_file(path), arguments.documents, path);
    if (text.bytes.empty()) fail(path + ": the file is empty");
    texts.emplace_back(beginning(text, arguments.fraction, unit_named("subword")));
    if (texts.back().empty()) fail(fmt::format("--fraction {} of {} is nothing", arguments.fraction, path));
    bytes += texts.back().size();
  }
  const auto tell = [&](const std::string& line) {
    if (!arguments.quiet) std::cerr << line << std::endl;
  };
  tell("tokenizer: finding " + std::to_string(arguments.training.size) + " pieces in " +
       byte_size(static_cast<double>(bytes)) + " of text; this may take minutes");
  const std::string model = train_subwords(texts, arguments.training);
  const Subwords subwords(model, arguments.out);
  write_file(arguments.out, model);
  constexpr size_t kSample = 1 << 20;
  const std::string sample = texts[0].substr(0, kSample);
  char ratio[16];
  std::snprintf(ratio, sizeof ratio, "%.2f",
                static_cast<double>(sample.size()) / static_cast<double>(subwords.encode(sample).size()));
  tell("tokenizer: wrote " + arguments.out + "; " + ratio + " bytes a piece");
  return 0;
}

}  // namespace

void add_tokenizer(const Command& program, Action& action) {
  const Command group =
      program.add_verb("tokenizer", "Make subwords: a SentencePiece model for data.unit = \"subword\"");
  group.requires_verb();
  const Command verb = group.add_verb("train", "Train a SentencePiece model on a text");
  verb.allows_extras();
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("--data", arguments->data, "texts to learn from, plain or gzip")
      .type_name("FILE")
      .required()
      .several();
  verb.add_option("--fraction", arguments->fraction,
                  "learn from the beginning of each text, so much of it; 0.9 is the training part of what data.split "
                  "cuts by default")
      .check(number(0.0, 1.0))
      .shows_default();
  verb.add_option("--documents", arguments->documents,
                  "the data.documents that the run will have: a marker between documents is not learned from")
      .type_name("VALUE")
      .shows_default();
  verb.add_option("--vocabulary", arguments->training.size,
                  "how many pieces, with the 256 bytes and 3 control symbols that every model has")
      .check(whole_number(260, int64_t{1} << 24))
      .shows_default();
  verb.add_option("--kind", arguments->training.kind, "how they are found")
      .check(one_of({"unigram", "bpe"}))
      .shows_default();
  verb.add_option("-o,--out", arguments->out, "the model's file, for data.tokenizer").required().type_name("FILE");
  verb.add_flag("--quiet", arguments->quiet, "no progress");
  verb.footer("Every text can be given back from its pieces, byte by byte. The same texts give the same file.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --fraction, or give less text", [=] { return run(*arguments); });
  });
}

}  // namespace lapse
