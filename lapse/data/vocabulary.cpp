#include "lapse/data/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "lapse/core/base64.h"
#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/core/json.h"
#include "lapse/data/pieces.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr char kOtherCharacter[] = "\xEF\xBF\xBD";  // U+FFFD
constexpr char kOtherWord[] = "<unk>";
constexpr char kEndOfLine[] = "<eos>";
constexpr char32_t kOtherCodePoint = 0xFFFD;
constexpr int32_t kOther = 0, kEndOfLineId = 1;

struct Counted {
  std::string_view token;
  int64_t count = 0;
};

std::vector<std::string> special_tokens(const Unit& unit) {
  if (!unit.counted) return {};
  return unit.words ? std::vector<std::string>{kOtherWord, kEndOfLine} : std::vector<std::string>{kOtherCharacter};
}

/// Visits each word, and with it the place in the text where it ends.
template <class Visit>
void for_each_word(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find_first_of(kWhiteSpace, at), text.size());
    if (end > at) visit(text.substr(at, end - at), end);
    if (end < text.size() && text[end] == '\n') visit(std::string_view(kEndOfLine), end + 1);
    at = end + 1;
  }
}

std::vector<Counted> count_characters(std::string_view text) {
  std::vector<Counted> by_code_point(0x110000);
  char32_t code = 0;
  for (size_t at = 0, start = 0; at < text.size(); start = at) {
    if (!next_code_point(text, at, code)) fail_utf8(text, at, "training text", kOtherUnits);
    Counted& character = by_code_point[code];
    character.token = text.substr(start, at - start);
    ++character.count;
  }
  std::erase_if(by_code_point, [](const Counted& c) { return c.count == 0; });
  return by_code_point;
}

std::vector<Counted> count_words(std::string_view text) {
  require_utf8(text, "training text", kOtherUnits);
  std::unordered_map<std::string_view, int64_t> counts;
  for_each_word(text, [&](std::string_view word, size_t) { ++counts[word]; });
  std::vector<Counted> result;
  for (const auto& [word, count] : counts) result.push_back({word, count});
  return result;
}

/// The special tokens, then what min_count and max_vocabulary leave, most frequent first.
std::vector<std::string> choose_tokens(std::vector<Counted> counted, const DataConfig& config) {
  std::vector<std::string> tokens = special_tokens(unit_named(config.unit));
  size_t special = tokens.size();
  std::erase_if(counted, [&](const Counted& c) {
    return c.count < config.min_count || std::find(tokens.begin(), tokens.end(), c.token) != tokens.end();
  });
  std::sort(counted.begin(), counted.end(), [](const Counted& a, const Counted& b) {
    return a.count != b.count ? a.count > b.count : a.token < b.token;
  });
  size_t limit = config.max_vocabulary > 0 ? static_cast<size_t>(config.max_vocabulary) : counted.size() + special;
  for (const Counted& c : counted) {
    if (tokens.size() >= limit) break;
    tokens.emplace_back(c.token);
  }
  if (tokens.size() == special) {
    fail(fmt::format(
        "the vocabulary is empty: no {} of the training text is kept by min_count = {}, max_vocabulary = {}",
        config.unit, config.min_count, config.max_vocabulary));
  }
  return tokens;
}

bool is_one_character(const std::string& token) {
  size_t at = 0;
  char32_t code;
  return !token.empty() && next_code_point(token, at, code) && at == token.size();
}

bool is_one_word(const std::string& token) {
  return !token.empty() && token.find_first_of(kWhiteSpace) == std::string::npos;
}

/// Refuses lists that `build` cannot have made.
void check_tokens(const Unit& unit, const std::vector<std::string>& tokens, const std::string& origin) {
  std::vector<std::string> special = special_tokens(unit);
  if (tokens.size() < special.size() || !std::equal(special.begin(), special.end(), tokens.begin())) {
    fail(fmt::format("{}: the first tokens of unit \"{}\" must be: {}", origin, unit.name, fmt::join(special, " ")));
  }
  std::set<std::string_view> seen;
  for (const std::string& token : tokens) {
    bool right_form = unit.words ? is_one_word(token) : is_one_character(token);
    if (!right_form) fail(fmt::format("{}: token {} is not one {}", origin, seen.size(), unit.name));
    if (!seen.insert(token).second) fail(fmt::format("{}: token {} occurs twice", origin, seen.size()));
  }
}

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

}  // namespace

Vocabulary::Vocabulary(const Unit& unit, std::vector<std::string> tokens, bool has_bos)
    : unit_(&unit), has_bos_(has_bos), tokens_(std::move(tokens)) {
  for (size_t id = 0; id < tokens_.size() && (unit.words || unit.counted); ++id) {
    if (unit.words) {
      ids_.emplace(tokens_[id], static_cast<int32_t>(id));
      continue;
    }
    size_t at = 0;
    char32_t code = 0;
    next_code_point(tokens_[id], at, code);
    if (code >= by_code_point_.size()) by_code_point_.resize(code + 1, kOther);
    by_code_point_[code] = static_cast<int32_t>(id);
  }
}

Vocabulary Vocabulary::build(const DataConfig& config, std::string_view text) {
  Vocabulary vocabulary = of_text(config, text);
  if (!config.corrupts_spans()) return vocabulary;
  vocabulary.sentinels_ = config.sentinels;
  vocabulary.padded_ = config.padded_vocabulary;
  if (vocabulary.padded_ > 0 && vocabulary.padded_ < vocabulary.used())
    fail(fmt::format("data.padded_vocabulary = {0}: {1} ids are used; give at least {1}", vocabulary.padded_,
                     vocabulary.used()));
  return vocabulary;
}

Vocabulary Vocabulary::of_text(const DataConfig& config, std::string_view text) {
  if (text.empty()) fail("the training text is empty");
  const Unit& unit = unit_named(config.unit);
  if (unit.pieces) {
    if (config.tokenizer.empty())
      fail(fmt::format("data.unit = \"{}\" needs data.tokenizer, the file of {}", unit.name,
                       unit.normalised ? "T5's SentencePiece model, spiece.model"
                                       : "a SentencePiece model; `lapse tokenizer train` makes one"));
    if (!is_there(config.tokenizer))
      fail(fmt::format("data.tokenizer: there is no file '{}'; {}", config.tokenizer,
                       unit.normalised
                           ? "give the path of T5's SentencePiece model, spiece.model"
                           : fmt::format("`lapse tokenizer train --data TEXT --vocabulary N --out {}` makes it, of N "
                                         "pieces",
                                         config.tokenizer)));
    return of_pieces(unit, read_file(config.tokenizer), config.tokenizer, config.in_windows());
  }
  if (!unit.counted) return Vocabulary(unit, all_bytes(), config.in_windows());
  if (unit.words) return Vocabulary(unit, choose_tokens(count_words(text), config), config.in_windows());
  std::vector<std::string> tokens = choose_tokens(count_characters(text), config);
  std::sort(tokens.begin() + 1, tokens.end());  // UTF-8's byte order is that of its code points
  return Vocabulary(unit, std::move(tokens), config.in_windows());
}

Vocabulary Vocabulary::of_task(std::vector<std::string> tokens, bool has_bos, int64_t outputs) {
  Vocabulary vocabulary(unit_named("token"), std::move(tokens), has_bos);
  vocabulary.outputs_ = outputs;
  return vocabulary;
}

Vocabulary Vocabulary::of_pieces(const Unit& unit, std::string model, const std::string& origin, bool has_bos) {
  auto pieces = make_pieces(unit, std::move(model), origin);
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < pieces->size(); ++id) tokens.push_back(pieces->decode(id));
  Vocabulary vocabulary(unit, std::move(tokens), has_bos);
  vocabulary.pieces_ = std::move(pieces);
  return vocabulary;
}

const std::string& Vocabulary::pieces_model() const {
  static const std::string none;
  return pieces_ ? pieces_->model() : none;
}

Vocabulary Vocabulary::from_json(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  Vocabulary vocabulary = of_json(json, origin);
  const auto count = [&](const char* key, uint64_t least, uint64_t most) {
    const Json& number = json[key];
    if (!number.is_number_unsigned() || number < least || number > most)
      fail(fmt::format("{}: \"{}\" must be a whole number of {} ... {}", origin, key, least, most));
    return number.get<int64_t>();
  };
  if (json.contains("sentinels")) {
    vocabulary.sentinels_ = count("sentinels", 1, 1 << 20);
    if (vocabulary.has_bos_ || vocabulary.unit_->of_tasks)
      fail(origin + ": \"sentinels\" are for texts without windows");
  }
  if (json.contains("padded")) {
    if (vocabulary.sentinels_ == 0) fail(origin + ": \"padded\" is for vocabularies with \"sentinels\"");
    vocabulary.padded_ = count("padded", vocabulary.used(), 1 << 24);
  }
  return vocabulary;
}

Vocabulary Vocabulary::of_json(const Json& json, const std::string& origin) {
  const auto refuse = [&](const std::string& what) { fail(origin + ": " + what); };
  if (!json.is_object() || !json.contains("unit") || !json["unit"].is_string()) refuse("has no \"unit\"");
  if (json.contains("bos") && !json["bos"].is_boolean()) refuse("\"bos\" must be true or false");
  const Unit& unit = unit_named(std::string(json["unit"]), origin);
  const bool has_bos = json.value("bos", false);
  if (json.contains("outputs") && !unit.of_tasks) refuse("\"outputs\" are for the labels of a task");
  if (unit.pieces) {
    if (!json.contains("model") || !json["model"].is_string()) refuse("has no SentencePiece \"model\"");
    std::string model;
    try {
      model = from_base64(json["model"].get<std::string>());
    } catch (const Error& error) {
      refuse(std::string("its \"model\": ") + error.what());
    }
    return of_pieces(unit, std::move(model), origin, has_bos);
  }
  if (!unit.counted && !unit.of_tasks) return Vocabulary(unit, all_bytes(), has_bos);
  if (!json.contains("tokens") || !json["tokens"].is_array()) refuse("has no list of \"tokens\"");
  std::vector<std::string> tokens;
  for (const Json& token : json["tokens"]) {
    if (!token.is_string()) refuse(fmt::format("token {} is not a string", tokens.size()));
    tokens.push_back(token.get<std::string>());
  }
  if (tokens.empty()) refuse("has no token");
  check_tokens(unit, tokens, origin);
  Vocabulary vocabulary(unit, std::move(tokens), has_bos);
  if (!json.contains("outputs")) return vocabulary;
  constexpr uint64_t kMostOutputs = 1 << 24;
  const Json& outputs = json["outputs"];
  if (!outputs.is_number_unsigned() || outputs == 0 || outputs > kMostOutputs)
    refuse(fmt::format("\"outputs\" must be a whole number of 1 ... {}", kMostOutputs));
  vocabulary.outputs_ = outputs;
  return vocabulary;
}

std::string Vocabulary::to_json() const {
  nlohmann::json json = {{"unit", unit_->name}, {"bos", has_bos_}};
  if (pieces_)
    json["model"] = to_base64(pieces_->model());
  else if (unit_->counted || unit_->of_tasks)
    json["tokens"] = tokens_;
  if (outputs_ > 0) json["outputs"] = outputs_;
  if (sentinels_ > 0) json["sentinels"] = sentinels_;
  if (padded_ > 0) json["padded"] = padded_;
  return json.dump();
}

std::vector<int32_t> Vocabulary::encode(std::string_view text, std::vector<TextBytes>* text_bytes,
                                        bool continues) const {
  std::vector<TextBytes> unwanted;
  std::vector<int32_t> ids = encode_tokens(text, text_bytes != nullptr ? *text_bytes : unwanted, continues);
  if (first() > 0)
    for (int32_t& id : ids) id += first();
  return ids;
}

std::vector<int32_t> Vocabulary::encode_tokens(std::string_view text, std::vector<TextBytes>& lengths,
                                               bool continues) const {
  if (unit_->words) return encode_words(text, lengths);
  if (unit_->counted) return encode_characters(text, lengths);
  if (pieces_) {
    if (unit_->utf8) require_utf8(text, "text", kOtherUnits);
    return pieces_->encode(text, lengths, continues);
  }
  std::vector<int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return ids;
}

std::vector<int32_t> Vocabulary::encode_characters(std::string_view text, std::vector<TextBytes>& text_bytes) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  char32_t code;
  for (size_t at = 0, start = 0; at < text.size(); start = at) {
    if (!next_code_point(text, at, code)) fail_utf8(text, at, "text", kOtherUnits);
    ids.push_back(code < by_code_point_.size() ? by_code_point_[code] : kOther);
    const auto bytes = static_cast<int64_t>(at - start);
    text_bytes.push_back({bytes, ids.back() == kOther && code != kOtherCodePoint ? bytes : 0});
  }
  return ids;
}

std::vector<int32_t> Vocabulary::encode_words(std::string_view text, std::vector<TextBytes>& text_bytes) const {
  require_utf8(text, "text", kOtherUnits);
  std::vector<int32_t> ids;
  size_t before = 0;
  for_each_word(text, [&](std::string_view word, size_t end) {
    // What a person types, or copies from `lapse task show`: line ends, and the token that every sequence begins with.
    const bool line_ends = word == kEndOfLine && text[end - 1] == '\n';
    if (unit_->of_tasks && (line_ends || (word == kBos && has_bos_ && ids.empty()))) return;
    const auto found = ids_.find(word);
    if (found == ids_.end() && unit_->of_tasks)
      fail(fmt::format("the task has no token '{}'{}", word, did_you_mean(std::string(word), tokens_)));
    ids.push_back(found == ids_.end() ? kOther : found->second);
    const auto bytes = static_cast<int64_t>(end - before);
    const int64_t size = line_ends ? 1 : std::ssize(word);
    text_bytes.push_back({bytes, found == ids_.end() ? bytes : untold(bytes - size)});
    before = end;
  });
  const auto rest = static_cast<int64_t>(text.size() - before);
  if (!ids.empty()) text_bytes.back() += {rest, untold(rest)};
  return ids;
}

std::string Vocabulary::decode(int32_t given) const {
  if (has_bos_ && given == bos()) return "";
  const int32_t id = given - first();
  if (sentinels_ > 0 && (id < 0 || id >= std::ssize(tokens_)))
    return id < 0 || given >= used() ? "" : fmt::format("<extra_id_{}>", used() - 1 - given);
  const std::string& token = tokens_.at(static_cast<size_t>(id));
  if (!unit_->words) return token;
  return unit_->counted && id == kEndOfLineId ? "\n" : token + " ";
}

std::string Vocabulary::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (int32_t id : ids) text += decode(id);
  return text;
}

double Vocabulary::metric(double nats) const { return unit_->perplexity ? std::exp(nats) : nats / std::numbers::ln2; }

}  // namespace lapse
