#include "lapse/tasks/instruction_game.h"

#include <algorithm>

namespace lapse {
namespace {

constexpr double kAsks = 0.25, kMoves = 0.5;

}  // namespace

void InstructionGames::play(LogText& log) {
  if (round_ == 0) begin(log);
  round_ = (round_ + 1) % rules_.rounds;
  chat(log);
  for (int64_t agent = 0; agent < std::ssize(places_); ++agent) {
    const bool spoke = agent == viewpoint_ ? tell(log) : ask(agent, log);
    if (!spoke && random_.uniform() < kMoves) move(agent, log);
  }
}

void InstructionGames::begin(LogText& log) {
  places_.clear(), open_.clear();
  for (const auto& agent : world_.agents) places_.push_back(agent.room);
  known_.assign(world_.rooms.size(), false);
  viewpoint_ = static_cast<int64_t>(random_.below(places_.size()));
  words_.write(LogLine::begin, {words_.agent(viewpoint_), words_.room(here())}, log);
  look(log);
}

void InstructionGames::chat(LogText& log) {
  const Tokens& all = words_.chatter();
  const auto drawn = static_cast<int64_t>(random_.below(2 * rules_.chatter_words + 1));
  const int64_t count = std::min(drawn, all.size());
  if (count == 0) return;
  const auto first = static_cast<int64_t>(random_.below(all.size() - count + 1));
  InstructionWords::Words words;
  for (int64_t i = 0; i < count; ++i) words.push_back(all[first + i]);
  words_.write(LogLine::chatter, {words}, log);
}

bool InstructionGames::tell(LogText& log) {
  const auto task = std::ranges::find(open_, here(), [&](const Task& task) { return places_[task.target]; });
  if (task == open_.end()) return false;
  words_.write(LogLine::tells, {words_.agent(task->target), words_.agent(task->speaker)}, log);
  open_.erase(task);
  return true;
}

bool InstructionGames::ask(int64_t speaker, LogText& log) {
  if (places_[speaker] != here() || random_.uniform() >= kAsks) return false;
  std::vector<int64_t> free;
  for (int64_t agent = 0; agent < std::ssize(places_); ++agent)
    if (places_[agent] != here() && std::ranges::find(open_, agent, &Task::target) == open_.end())
      free.push_back(agent);
  if (free.empty()) return false;
  const int64_t target = free[random_.below(free.size())];
  words_.write(LogLine::asks, {words_.agent(speaker), words_.agent(target), words_.agent(speaker)}, log);
  open_.push_back({target, speaker});
  return true;
}

void InstructionGames::move(int64_t agent, LogText& log) {
  const auto& exits = world_.rooms[places_[agent]].exits;
  const int64_t from = places_[agent], to = exits[random_.below(exits.size())];
  places_[agent] = to;
  if (agent == viewpoint_) {
    words_.write(LogLine::go, {words_.room(to)}, log);
    look(log);
  } else if (from == here()) {
    words_.write(LogLine::leaves, {words_.agent(agent), words_.room(to)}, log);
  } else if (to == here()) {
    words_.write(LogLine::arrives, {words_.agent(agent), words_.room(from)}, log);
  }
}

void InstructionGames::look(LogText& log) {
  if (!known_[here()]) words_.write(words_.look(here()), log);
  known_[here()] = true;
  std::vector<int64_t> people;
  for (int64_t agent = 0; agent < std::ssize(places_); ++agent)
    if (agent != viewpoint_ && places_[agent] == here()) people.push_back(agent);
  if (!people.empty()) words_.write(LogLine::people, {words_.list_of(people)}, log);
}

}  // namespace lapse
