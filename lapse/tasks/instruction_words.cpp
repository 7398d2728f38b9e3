#include "lapse/tasks/instruction_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "lapse/core/error.h"

namespace lapse {
namespace {

/// By LogLine. The orders' and executions' words are the paper's (5.2).
constexpr std::array kLines = {
    "You are the {} in the {} .",
    "You go to the {} .",
    "People here : {} .",
    "The {} arrives from the {} .",
    "The {} leaves for the {} .",
    "The {} says \" can you tell the {} that the {} wants to see them ? \"",
    "You tell the {} \" {} wants to see you ! \"",
    "You overhear : {}",
};
constexpr size_t kAskedBegin = 3, kAskedEnd = 2;  // of an execution, words before and after what is asked for
constexpr const char* kListMark = ",";
constexpr int32_t kEndOfLine = 1;

std::string look_at(const LightWorld& world, const LightWorld::Room& room) {
  std::vector<std::string> exits;
  for (const int64_t next : room.exits) exits.push_back("the " + world.rooms[next].name);
  std::string text = room.description;
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  text += '\n';
  if (!room.objects.empty()) text += fmt::format("You see {}.\n", fmt::join(room.objects, ", "));
  return text + fmt::format("Paths lead to {}.\n", fmt::join(exits, ", "));
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream words(spaced(text));
  return {std::istream_iterator<std::string>(words), {}};
}

/// Of all that a log says but for chatter.
std::set<std::string> own_words(const LightWorld& world) {
  std::string all = kListMark;
  for (const std::string line : kLines) all += ' ' + line;
  for (const auto& agent : world.agents) all += ' ' + agent.name;
  for (const auto& room : world.rooms) all += ' ' + room.name + ' ' + look_at(world, room);
  auto words = words_of(all);
  words.erase("{}");
  return words;
}

DataConfig word_config(int64_t most) {
  DataConfig config;
  config.unit = "word", config.min_count = 1, config.max_vocabulary = most;
  return config;
}

Vocabulary vocabulary_of(const LightWorld& world, const std::string& chatter, int64_t most) {
  auto words = own_words(world);
  const auto own = Vocabulary::build(word_config(0), fmt::format("{}", fmt::join(words, " ")));
  if (own.size() > most)
    fail(fmt::format("instruction.vocabulary = {} has no room for the world's {} words; set at least {}", most,
                     own.size() - 2, own.size()));
  if (chatter.empty()) return own;
  const auto frequent = Vocabulary::build(word_config(most), spaced(chatter));
  const auto special = own.size() - std::ssize(words);
  for (auto id = static_cast<int32_t>(special); id < frequent.size() && std::ssize(words) + special < most; ++id) {
    const std::string word = frequent.decode(id);
    words.insert(word.substr(0, word.size() - 1));
  }
  return Vocabulary::build(word_config(0), fmt::format("{}", fmt::join(words, " ")));
}

}  // namespace

std::string spaced(std::string_view text) {
  static constexpr std::string_view kMarks = ".,;:!?\"()[]";
  std::string words;
  for (const char c : text) {
    if (kMarks.find(c) == kMarks.npos)
      words += c;
    else
      words += {' ', c, ' '};
  }
  return words;
}

InstructionWords::InstructionWords(const LightWorld& world, const std::string& chatter, int64_t most)
    : vocabulary_(vocabulary_of(world, chatter, most)), chatter_(vocabulary_.size()) {
  list_mark_ = encode(kListMark), the_ = encode("the");
  for (const auto& agent : world.agents) agents_.push_back(encode(agent.name));
  for (const auto& room : world.rooms) {
    rooms_.push_back(encode(room.name));
    looks_.push_back(vocabulary_.encode(spaced(look_at(world, room))));
  }
  for (const std::string line : kLines) {
    auto& pieces = lines_.emplace_back();
    size_t begin = 0;
    for (size_t gap; (gap = line.find("{}", begin)) != line.npos; begin = gap + 2)
      pieces.push_back(encode(line.substr(begin, gap - begin)));
    pieces.push_back(vocabulary_.encode(line.substr(begin) + '\n'));
  }
  std::istringstream lines(chatter);
  for (std::string line; std::getline(lines, line);) chatter_.append(encode(line));
}

InstructionWords::Words InstructionWords::encode(const std::string& text) const {
  Words words = vocabulary_.encode(spaced(text));
  std::erase(words, kEndOfLine);
  return words;
}

InstructionWords::Words InstructionWords::list_of(const std::vector<int64_t>& agents) const {
  Words list;
  for (const int64_t agent : agents) {
    if (!list.empty()) list.insert(list.end(), list_mark_.begin(), list_mark_.end());
    list.insert(list.end(), the_.begin(), the_.end());
    list.insert(list.end(), agents_[agent].begin(), agents_[agent].end());
  }
  return list;
}

void InstructionWords::write(LogLine line, std::initializer_list<std::span<const int32_t>> gaps, LogText& log) const {
  const auto append = [&](std::span<const int32_t> words) {
    log.words.insert(log.words.end(), words.begin(), words.end());
  };
  const auto& pieces = lines_[static_cast<size_t>(line)];
  const size_t begin = log.words.size();
  auto piece = pieces.begin();
  append(*piece);
  for (const auto gap : gaps) append(gap), append(*++piece);
  log.asked.resize(log.words.size(), false);
  if (line == LogLine::tells)
    std::fill(log.asked.begin() + static_cast<int64_t>(begin + kAskedBegin), log.asked.end() - kAskedEnd, true);
}

void InstructionWords::write(const Words& lines, LogText& log) const {
  log.words.insert(log.words.end(), lines.begin(), lines.end());
  log.asked.resize(log.words.size(), false);
}

uint32_t InstructionWords::checksum() const {
  Tokens world(vocabulary_.size());
  for (const auto* part : {&agents_, &rooms_, &looks_})
    for (const auto& words : *part) world.append(words);
  return world.checksum() ^ chatter_.checksum();
}

}  // namespace lapse
