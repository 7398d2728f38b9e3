// What a token is (data.unit), and what follows from it. How a text is cut into tokens is Vocabulary's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lapse {

struct Unit {
  std::string_view name;
  std::string_view metric, tag;  ///< what a mean loss is given as: "bits per byte", "bpb"
  bool perplexity = false;       ///< that is exp(nats); else bits
  bool reported = false;         ///< it is given beside bits per byte, where it means the same for every vocabulary
  bool of_tasks = false;         ///< no text has it, and no configuration names it
  bool utf8 = false;             ///< a text must be UTF-8
  bool words = false;            ///< tokens are words between white space
  bool pieces = false;           ///< tokens are pieces of a SentencePiece model, which begin with the space before them
  bool normalised = false;       ///< of these, those of T5's own models: a text is normalised and begins with a space
  bool counted = false;          ///< tokens are chosen by how frequent they are (data.min_count, data.max_vocabulary)
  bool ranked = false;           ///< and numbered by it
};

/// Those that data.unit may name.
std::vector<std::string> unit_names();
/// Error naming those there are; `origin` begins it.
const Unit& unit_named(std::string_view name, const std::string& origin = "");

}  // namespace lapse
