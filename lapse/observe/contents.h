// What stands at the steps of a record, for the page: characters of a text, or what an agent saw and did.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lapse/data/vocabulary.h"
#include "lapse/observe/episode_recorder.h"
#include "lapse/observe/recorder.h"
#include "lapse/observe/sight.h"

namespace lapse {

/// What can be shown and pointed at: the fewest neighbouring tokens that are whole characters, or one step of an agent.
struct Cell {
  std::string text;      ///< UTF-8; bytes that are none as \xNN
  int64_t tokens = 0;    ///< how many of the tokens, or steps, it is made of
  Sight sight = {};      ///< of a step
  std::string act = {};  ///< of a step: the action, and the policy
};

struct Contents {
  std::string unit = "token", part = "window";  ///< what a step is, and what begins with empty memory
  bool bos = false;                             ///< each part begins with a token that stands for no text
  std::vector<std::vector<Cell>> cells;         ///< of each part
  std::vector<std::string> headings;            ///< of each part; empty: there are none
  std::vector<double> nats;                     ///< TextRecord::nats; else empty
  bool answers = false;                         ///< these are of answers asked at a token, not of the token after it
  std::vector<std::pair<std::string, std::vector<double>>> numbers;  ///< by name, one for each step
};

Contents contents_of(const TextRecord& record, const Vocabulary& vocabulary);
Contents contents_of(const EpisodesRecord& record, const EnvironmentOptions& environment);

/// The cells of tokens that are read one after the other; `pieces`: the bytes of each.
std::vector<Cell> cells_of(const std::vector<std::string>& pieces);
/// Bytes as UTF-8; those that are none as \xNN.
std::string readable(const std::string& bytes);

}  // namespace lapse
