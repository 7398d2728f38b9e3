#include "lapse/serve/play.h"

namespace lapse {

struct Play::Saved : State {
  struct One {
    EpisodePlayer::State player;
    Stream stream;
  };
  std::vector<One> agents;
  int64_t time;
};

Play::Agent::Agent(std::shared_ptr<const Opened> opened, const EnvironmentOptions& environment,
                   const PlaySettings& settings)
    : opened(std::move(opened)),
      player(*this->opened->model, environment, settings.seed, settings.greedy),
      stream(*this->opened->model) {}

Play::Play(const std::vector<std::shared_ptr<const Opened>>& opened, std::vector<LaneSettings> lanes,
           const PlaySettings& settings)
    : lanes_(std::move(lanes)),
      settings_(settings),
      shape_(opened[0]->reader.config().environment()->shape()),
      labels_(*opened[0]->reader.config().environment()) {
  for (const auto& one : opened)
    agents_.push_back(std::make_unique<Agent>(one, *opened[0]->reader.config().environment(), settings));
}

Json Play::act(Agent& agent) const {
  const bool begins = agent.player.begins();
  const int64_t episode = agent.player.episodes();
  const AgentStep now = agent.player.step(agent.stream);
  const Sight sight = sight_of(shape_, now.bits);
  Json policy = Json::object();
  for (size_t a = 0; a < now.policy.size(); ++a) policy[shape_.actions[a]] = short_number(now.policy[a]);
  Json act = {{"text", labels_.of(sight)},
              {"sight", sight},
              {"action", shape_.actions[now.action]},
              {"policy", std::move(policy)},
              {"value", short_number(now.value)},
              {"reward", short_number(now.result.reward)},
              {"episode", episode}};
  if (begins) act["begins"] = true;
  if (now.result.end) act["score"] = short_number(now.result.score);
  return act;
}

std::function<std::string()> Play::step() {
  Json event = {{"t", time_}, {"ms", now_ms()}, {"acts", Json::array()}};
  std::vector<std::vector<LayerChange>> lanes;
  for (auto& agent : agents_) {
    event["acts"].push_back(act(*agent));
    lanes.push_back(agent->stream.take_changes());
  }
  ++time_;
  return [event = std::move(event), lanes = std::move(lanes)] { return with_lanes(event.dump(), lanes); };
}

std::shared_ptr<const Subject::State> Play::save() const {
  auto saved = std::make_shared<Saved>();
  for (const auto& agent : agents_) saved->agents.push_back({agent->player.save(), agent->stream});
  saved->time = time_;
  return saved;
}

void Play::restore(const State& state) {
  const auto& saved = dynamic_cast<const Saved&>(state);
  for (size_t i = 0; i < agents_.size(); ++i) {
    agents_[i]->player.restore(saved.agents[i].player);
    agents_[i]->stream = saved.agents[i].stream;
  }
  time_ = saved.time;
}

Json Play::describe() const {
  Json lanes = Json::array();
  for (size_t i = 0; i < agents_.size(); ++i)
    lanes.push_back(lane_json(*agents_[i]->opened, lanes_[i], agents_[i]->stream));
  return {{"kind", "steps"},
          {"environment", opened()->reader.config().task_name},
          {"environment_options", environment_options(*opened())},
          {"score", shape_.score},
          {"actions", shape_.actions},
          {"seed", settings_.seed},
          {"greedy", settings_.greedy},
          {"lanes", std::move(lanes)}};
}

Json Play::told() const {
  Json all = Json::array();
  for (const auto& agent : agents_) all.push_back(told_json(agent->stream, std::ssize(agent->opened->model->layers())));
  return all;
}

// Agents act as they did: from the state before the steps are taken once more up to the one before the newest.
std::vector<Play::Weights> Play::reads_again(int64_t time, const State& before) {
  const int64_t newest = time_ - 1;
  restore(before);
  for (; time_ < newest; ++time_)
    for (auto& agent : agents_) agent->player.step(agent->stream);
  std::vector<Weights> reads;
  for (auto& agent : agents_)
    reads.push_back(weights_of(agent->player.look(agent->player.save(), {.rows = true, .pairs = Pairs::reads}), time));
  return reads;
}

Json Play::row(int64_t time, const State& before) {
  const auto now = save();
  const int64_t newest = time_ - 1;
  std::vector<Weights> reads;
  try {
    reads = reads_again(time, before);
  } catch (...) {
    restore(*now);
    throw;
  }
  restore(*now);
  Json lanes = Json::array();
  for (size_t i = 0; i < agents_.size(); ++i) lanes.push_back(rows_json(agents_[i]->stream, reads[i], time));
  return {{"t", time}, {"at", newest}, {"lanes", std::move(lanes)}};
}

}  // namespace lapse
