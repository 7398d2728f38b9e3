#include "lapse/cli/frame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>

#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr size_t kCellWidth = 14;  // at least; a grid's cells are as wide as its widest

/// A cell's text on the colour that one of its words names.
std::string coloured(const std::vector<std::string>& words, const std::string& text) {
  static const std::map<std::string, std::string> codes = {
      {"red", "97;41"},    {"blue", "97;44"},         {"green", "97;42"},  {"yellow", "30;43"},
      {"purple", "97;45"}, {"orange", "30;48;5;208"}, {"white", "30;107"}, {"cyan", "30;46"},
  };
  for (const auto& word : words)
    if (const auto code = codes.find(word); code != codes.end()) return "\033[" + code->second + "m" + text + "\033[0m";
  return text;
}

/// Characters of UTF-8.
size_t length_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return !continues_character(c); });
}

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr int kBeside = 12;  // columns left of a layer's strip

/// Steps, one after the other, that are remembered or forgotten alike.
struct Stretch {
  int64_t steps;
  bool remembered;
};

/// "####", or a number if that is shorter and asked for: "#90#".
std::string drawn(const Stretch& stretch, bool shorten) {
  const char mark = stretch.remembered ? '#' : '.';
  const std::string number = fmt::format("{0}{1}{0}", mark, stretch.steps);
  return shorten && std::ssize(number) < stretch.steps ? number : std::string(stretch.steps, mark);
}

/// "##....###" in at most `room` characters: long stretches are numbers, forgotten ones first; if that is not enough,
/// only the newest are drawn, after the number of steps before them: "<120<.."
std::string fitted(const std::vector<Stretch>& strip, size_t room) {
  std::string text;
  for (const auto& [forgotten, all] : {std::pair(false, false), {true, false}, {true, true}}) {
    text.clear();
    for (const auto& stretch : strip) text += drawn(stretch, stretch.remembered ? all : forgotten);
    if (text.size() <= room) return text;
  }
  int64_t before = 0;
  for (const auto& stretch : strip) before += stretch.steps;
  text.clear();
  for (auto newest = strip.rbegin(); newest != strip.rend(); ++newest) {
    const std::string next = drawn(*newest, true) + text;
    if (next.size() + fmt::format("<{}<", before).size() > room) break;
    text = next, before -= newest->steps;
  }
  return fmt::format("<{}<", before) + text;
}

/// Names with commas between them, in lines of at most `width` where a name fits; the newest, if there are too many.
std::vector<std::string> listed(const std::vector<std::string>& names, size_t width, int64_t most_lines) {
  if (names.empty()) return {"nothing"};
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string next = names[i] + (i + 1 < names.size() ? "," : "");
    if (!lines.back().empty() && length_of(lines.back()) + 1 + length_of(next) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + next;
  }
  const int64_t more = std::ssize(lines) - most_lines;
  if (more <= 0) return lines;
  if (most_lines == 1) return {"... " + lines.back()};
  lines.erase(lines.begin(), lines.begin() + more + 1);
  lines.insert(lines.begin(), "earlier ones, and:");
  return lines;
}

/// Of a text whose lines all end.
std::string first_lines(const std::string& text, int64_t count) {
  size_t end = 0;
  for (int64_t line = 0; line < count && end < text.size(); ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

/// "3", "3-7".
std::string range(int64_t first, int64_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

}  // namespace

std::string draw_sight(const Sight& sight, bool colour) {
  const int64_t side = side_of(std::ssize(sight)), columns = side > 0 ? side : std::ssize(sight);
  std::vector<std::string> texts;
  for (const auto& words : sight) texts.push_back(fmt::format("{}", fmt::join(words, " ")));
  size_t width = kCellWidth;
  for (const auto& text : texts) width = std::max(width, text.size());
  std::string grid;
  for (int64_t cell = 0; cell < std::ssize(sight); ++cell) {
    const std::string text = fmt::format(" {:<{}} ", texts[cell], width);
    grid += (cell % columns == 0 ? "  |" : "") + (colour ? coloured(sight[cell], text) : text) + "|";
    if (cell % columns == columns - 1) grid += '\n';
  }
  return grid;
}

std::string around_agent(const std::string& map, int columns) {
  const auto width = std::ssize(map.substr(0, map.find('\n')));
  if (width <= columns) return map;
  const auto agent = static_cast<int64_t>(map.find('@')) % (width + 1);
  const int64_t first = std::clamp<int64_t>(agent - columns / 2, 0, width - columns);
  std::string part, line;
  for (std::istringstream lines(map); std::getline(lines, line);) part += line.substr(first, columns) + '\n';
  return part;
}

std::string StepFrame::draw(int64_t step) const {
  const auto next = std::ranges::upper_bound(record.begins, step);
  const int64_t begin = *std::prev(next);
  const AgentStep& now = record.steps[step];
  double sum = 0;
  for (int64_t i = begin; i <= step; ++i) sum += record.steps[i].result.reward;
  const std::string seen =
      fmt::format("episode {}, step {}\n\n{}\n", first_episode + (next - record.begins.begin()) - 1, step - begin,
                  draw_sight(sight_of(shape, now.bits), colour));
  std::string text = fmt::format("  takes {:<10}", shape.actions[now.action]);
  for (size_t a = 0; a < now.policy.size(); ++a) text += fmt::format("  {} {:.2f}", shape.actions[a], now.policy[a]);
  text += fmt::format("\n  value {:<10.3f}  reward {:g}  return {:g}\n\n", now.value, now.result.reward, sum);
  text += "  # remembered, . forgotten, @ now; .99. are 99 forgotten steps, <99< 99 earlier ones, not drawn\n";
  std::string end;
  if (now.result.end)
    end = fmt::format("\n  the episode ends: {} {:g}, return {:g}, {} steps\n", shape.score, now.result.score, sum,
                      step - begin + 1);
  int64_t room = rows - std::ranges::count(seen + text + end, '\n');
  const std::string world = draw_map(room);
  text = seen + world + text;
  room -= std::ranges::count(world, '\n');
  // In a very low terminal the notice that layers have no room stands in the place of the last line.
  if (room < 1) return first_lines(text + end, rows - 1) + draw_layers(begin, step, room);
  return text + draw_layers(begin, step, room) + end;
}

/// Of `room` lines it leaves one to each layer, since memory is what the frame is for; or else a line says that there
/// is no map, if another is left for the layers.
std::string StepFrame::draw_map(int64_t room) const {
  if (map.empty()) return "";
  const int64_t needed = std::ranges::count(map, '\n') + 1 + std::ssize(record.layers);
  if (needed <= room) return map + '\n';
  return room < 2 ? "" : fmt::format("  the map has no room here: {} more lines are needed\n", needed - room);
}

/// In at most `room` lines: of each layer the strip, and what there is room for of its list. If even the strips are too
/// many, those of the first layers.
std::string StepFrame::draw_layers(int64_t begin, int64_t step, int64_t room) const {
  constexpr int64_t kMostListed = 4;
  const int64_t layers = std::ssize(record.layers), shown = room >= layers ? layers : std::max<int64_t>(room - 1, 0);
  const bool whole = rows == std::numeric_limits<int>::max();
  const int64_t most_listed = whole ? kAny : std::clamp<int64_t>(room / layers - 1, 0, kMostListed);
  std::string text;
  for (int64_t l = 0; l < shown; ++l)
    text += fmt::format("  layer {:<3}{}", l, draw_memory(record.layers[l], begin, step, most_listed));
  if (shown < layers)
    text += fmt::format("  layers {} have no room here: {} more lines are needed\n", range(shown, layers - 1),
                        layers - room);
  return text;
}

std::string StepFrame::draw_memory(const LayerRecord& layer, int64_t begin, int64_t step, int64_t most_listed) const {
  std::vector<Stretch> strip;
  std::vector<std::string> names;
  const auto remembered = [&](int64_t i) { return layer.held[i] >= step - i; };
  for (int64_t i = begin, last = begin; i < step; i = last + 1) {
    last = i;
    while (last + 1 < step && remembered(last + 1) == remembered(i) && labels[last + 1] == labels[i]) ++last;
    if (strip.empty() || strip.back().remembered != remembered(i)) strip.push_back({0, remembered(i)});
    strip.back().steps += last + 1 - i;
    if (remembered(i))
      names.push_back(range(i - begin, last - begin) + (labels[i].empty() ? "" : " (" + labels[i] + ")"));
  }
  const auto room = static_cast<size_t>(std::max(columns - kBeside, 10));
  std::string text = fitted(strip, room - 1) + "@\n";
  if (most_listed == 0) return text;
  for (const auto& line : listed(names, room, most_listed)) text += std::string(kBeside - 1, ' ') + line + '\n';
  return text;
}

}  // namespace lapse
