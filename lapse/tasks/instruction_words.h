// What a log of the instruction task can say, in words of its vocabulary.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lapse/data/corpus.h"
#include "lapse/tasks/instruction_world.h"

namespace lapse {

/// The lines of a log but for looks; names and words fill their gaps.
enum class LogLine { begin, go, people, arrives, leaves, asks, tells, chatter };

struct LogText {
  std::vector<int32_t> words;
  std::vector<bool> asked;  ///< the words of an execution after "You tell the", up to "!"
};

class InstructionWords {
 public:
  using Words = std::vector<int32_t>;

  /// `most`: words of the vocabulary: all of the world and of the lines, then the most frequent of the chatter. Error
  /// if the former are more.
  InstructionWords(const LightWorld& world, const std::string& chatter, int64_t most);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const Tokens& chatter() const { return chatter_; }
  const Words& agent(int64_t agent) const { return agents_[agent]; }
  const Words& room(int64_t room) const { return rooms_[room]; }
  /// Lines of what is to be seen there: description, objects, paths.
  const Words& look(int64_t room) const { return looks_[room]; }
  /// "the butler , the fox".
  Words list_of(const std::vector<int64_t>& agents) const;

  void write(LogLine line, std::initializer_list<std::span<const int32_t>> gaps, LogText& log) const;
  void write(const Words& lines, LogText& log) const;

  /// Tells another world or chatter from this one.
  uint32_t checksum() const;

 private:
  /// Without line ends.
  Words encode(const std::string& text) const;

  Vocabulary vocabulary_;
  std::vector<Words> agents_, rooms_, looks_;
  std::vector<std::vector<Words>> lines_;  // of each line, what stands between the gaps
  Words list_mark_, the_;
  Tokens chatter_;
};

/// The text with each of the marks . , ; : ! ? " ( ) [ ] as a word of its own.
std::string spaced(std::string_view text);

}  // namespace lapse
