#include "lapse/observe/contents.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/data/utf8.h"

namespace lapse {

std::vector<Cell> cells_of(const std::vector<std::string>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece;
  std::vector<Cell> cells;
  bool open = false;  // the last cell has bytes of a character that is not whole yet
  size_t at = 0, end = 0;
  for (const auto& piece : pieces) {
    end += piece.size();
    if (!open) cells.emplace_back();
    Cell& cell = cells.back();
    ++cell.tokens;
    while (at < end) {
      const size_t before = at;
      if (char32_t code; next_code_point(text, at, code))
        cell.text += text.substr(before, at - before);
      else
        cell.text += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[at++]));
    }
    open = at > end;
  }
  return cells;
}

std::string readable(const std::string& bytes) {
  std::string text;
  for (const Cell& cell : cells_of({bytes})) text += cell.text;
  return text;
}

Contents contents_of(const TextRecord& record, const Vocabulary& vocabulary) {
  const bool predicts_tokens = vocabulary.outputs() == vocabulary.size();
  Contents contents{.bos = vocabulary.bos() >= 0, .nats = record.nats, .answers = !predicts_tokens};
  for (size_t w = 0; w < record.begins.size(); ++w) {
    const int64_t begin = record.begins[w];
    const int64_t end = w + 1 < record.begins.size() ? record.begins[w + 1] : std::ssize(record.tokens);
    std::vector<std::string> pieces;
    for (int64_t i = begin; i < end; ++i) pieces.push_back(vocabulary.decode(record.tokens[i]));
    // The token that comes after the part was predicted, not read.
    if (record.ends[w] >= 0 && predicts_tokens) pieces.push_back(vocabulary.decode(record.ends[w]));
    int64_t left = end - begin;
    auto cells = cells_of(pieces);
    for (auto& cell : cells) {
      cell.tokens = std::min(cell.tokens, left);
      left -= cell.tokens;
    }
    contents.cells.push_back(std::move(cells));
    if (record.begins.size() > 1) contents.headings.push_back(fmt::format("window {}", w));
  }
  return contents;
}

Contents contents_of(const EpisodesRecord& record, const EnvironmentOptions& environment) {
  const EnvironmentShape shape = environment.shape();
  const SightLabels labels(environment);
  Contents contents{.unit = "step", .part = "episode"};
  std::vector<double> values, rewards;
  for (size_t e = 0; e < record.begins.size(); ++e) {
    const int64_t begin = record.begins[e];
    const int64_t end = e + 1 < record.begins.size() ? record.begins[e + 1] : std::ssize(record.steps);
    double sum = 0;
    auto& cells = contents.cells.emplace_back();
    for (int64_t i = begin; i < end; ++i) {
      const AgentStep& step = record.steps[i];
      std::string act = shape.actions[step.action] + " (";
      for (size_t a = 0; a < step.policy.size(); ++a)
        act += fmt::format("{}{} {:.2f}", a > 0 ? ", " : "", shape.actions[a], step.policy[a]);
      Sight sight = sight_of(shape, step.bits);
      cells.push_back({.text = labels.of(sight), .tokens = 1, .sight = std::move(sight), .act = act + ")"});
      values.push_back(step.value), rewards.push_back(step.result.reward);
      sum += step.result.reward;
    }
    const StepResult& last = record.steps[end - 1].result;
    contents.headings.push_back(
        fmt::format("episode {} · {}return {:g} · {} steps", e,
                    last.end ? fmt::format("{} {:g} · ", shape.score, last.score) : std::string("not at its end · "),
                    sum, end - begin));
  }
  contents.numbers = {{"value", std::move(values)}, {"reward", std::move(rewards)}};
  return contents;
}

}  // namespace lapse
