#include "lapse/serve/asked.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "lapse/forgetting/registry.h"
#include "lapse/serve/failure.h"

namespace lapse {
namespace {

constexpr size_t kMostStops = 16;

LaneSettings lane_of(Json json, size_t number) {
  JsonFields fields(std::move(json), fmt::format("lanes[{}]", number));
  LaneSettings lane{.run = fields.whole("run", 0, 0, 1 << 20)};
  if (fields.has("method")) {
    const std::string name = fields.text("method", "");
    if (!name.empty()) find_method_to_read_with(name), lane.method = name;
  }
  const Json options = fields.any("options");
  if (!options.is_null() && !options.is_object())
    throw Failure(400, fmt::format("lanes[{}].options: give a JSON object", number));
  for (const auto& [name, value] : options.items())
    if (value.is_string() || value.is_number())
      lane.options[name] = value.is_string() ? value.get<std::string>() : value.dump();
    else
      throw Failure(400, fmt::format("lanes[{}].options.{}: give a number or a text", number, name));
  fields.finish();
  return lane;
}

}  // namespace

std::vector<LaneSettings> lanes_of(JsonFields& fields) {
  const Json given = fields.any("lanes");
  if (given.is_null()) return {{}};
  if (!given.is_array() || given.empty() || given.size() > 2) throw Failure(400, "lanes: give a list of one or two");
  std::vector<LaneSettings> lanes;
  for (const auto& one : given) lanes.push_back(lane_of(one, lanes.size()));
  return lanes;
}

void require_options(const LaneSettings& lane, const Library& library, const std::string& where) {
  if (lane.run >= library.runs()) return;
  const Reader& reader = library.run(lane.run).reader;
  const auto method = reader.config().copy_method(lane.method.value_or(reader.method->name()));
  const Fields fields = method->reading_fields();
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  for (const auto& [name, value] : lane.options) {
    const auto field = std::ranges::find(fields, name, &Field::name);
    if (field == fields.end())
      fail(fmt::format("{}{}: {} has no such option; it has {}", where, name, method->name(),
                       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    set_field(*field, value, where + name);
  }
}

std::vector<int32_t> ids_of(JsonFields& fields) {
  const Json given = fields.any("ids");
  if (given.is_null()) return {};
  const char* wanted = "ids: give a list of tokens' numbers";
  if (!given.is_array() || given.empty()) throw Failure(400, wanted);
  std::vector<int32_t> ids;
  for (const auto& one : given) {
    if (!one.is_number_integer() || one < 0 || one > std::numeric_limits<int32_t>::max()) throw Failure(400, wanted);
    ids.push_back(one.get<int32_t>());
  }
  return ids;
}

std::vector<std::string> stop_of(JsonFields& fields) {
  const Json given = fields.any("stop");
  if (given.is_null()) return {};
  const std::string wanted = fmt::format("stop: give a text, or a list of at most {}, none of them empty", kMostStops);
  const Json list = given.is_array() ? given : Json::array({given});
  if (list.size() > kMostStops) throw Failure(400, wanted);
  std::vector<std::string> texts;
  for (const auto& one : list) {
    if (!one.is_string() || one == "") throw Failure(400, wanted);
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

SamplingOptions sampling_of(JsonFields& fields, const SamplingOptions& otherwise) {
  return {.temperature = fields.number("temperature", otherwise.temperature, 0, 100),
          .top_k = fields.whole("top_k", otherwise.top_k, 0, int64_t{1} << 40),
          .top_p = fields.number("top_p", otherwise.top_p, 0, 1)};
}

uint64_t seed_of(JsonFields& fields, uint64_t otherwise) {
  return static_cast<uint64_t>(fields.whole("seed", static_cast<int64_t>(otherwise), 0, int64_t{1} << 53));
}

PlaySettings play_of(JsonFields& fields, const PlaySettings& otherwise) {
  return {.seed = seed_of(fields, otherwise.seed), .greedy = fields.yes("greedy", otherwise.greedy)};
}

}  // namespace lapse
