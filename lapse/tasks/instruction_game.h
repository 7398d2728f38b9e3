// Games of the instruction task, one after the other, as the log of one agent, the viewpoint, who is told what others
// want and tells those whom it concerns once it meets them (Sukhbaatar et al. 2021, 5.2). In a round all agents take
// their turns, in the world's order:
//
//   another agent  in the viewpoint's room, with probability 1/4, if somebody elsewhere has no open task: asks that one
//                  of them, any, be told that it wants to see them; the task opens
//   the viewpoint  in a room with a target of an open task: tells the one that was asked for first; the task closes
//   both           else, with probability 1/2: goes by one of the room's exits
//
// The log says what the viewpoint does and hears, who comes and goes where it is, what is to be seen in rooms that are
// new to it in this game, and chatter, some words in a row from a corpus, before each round.
#pragma once

#include "lapse/core/random.h"
#include "lapse/tasks/instruction_words.h"

namespace lapse {

struct InstructionRules {
  int64_t rounds = 100;        ///< of a game; then another begins, with a viewpoint drawn anew
  int64_t chatter_words = 20;  ///< per round on average: uniform in 0 ... twice as many
};

class InstructionGames {
 public:
  /// World and words must outlive the games.
  InstructionGames(const LightWorld& world, const InstructionWords& words, const InstructionRules& rules, Random random)
      : world_(world), words_(words), rules_(rules), random_(std::move(random)) {}

  /// Appends the next round.
  void play(LogText& log);

 private:
  struct Task {
    int64_t target, speaker;
  };

  void begin(LogText& log);
  void chat(LogText& log);
  bool tell(LogText& log);
  bool ask(int64_t speaker, LogText& log);
  void move(int64_t agent, LogText& log);
  void look(LogText& log);
  int64_t here() const { return places_[viewpoint_]; }

  const LightWorld& world_;
  const InstructionWords& words_;
  InstructionRules rules_;
  Random random_;
  int64_t round_ = 0, viewpoint_ = 0;
  std::vector<int64_t> places_;  // of each agent: a room
  std::vector<bool> known_;      // rooms that were looked at
  std::vector<Task> open_;       // the oldest first
};

}  // namespace lapse
