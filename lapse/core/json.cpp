#include "lapse/core/json.h"

#include <fmt/format.h>

#include <utility>

#include "lapse/core/error.h"

namespace lapse {

Json parse_json(const std::string& text, const std::string& origin) {
  constexpr int kMostLevels = 64;
  const auto check = [&](int level, Json::parse_event_t, Json&) {
    if (level > kMostLevels) fail(fmt::format("{}: more than {} levels of JSON", origin, kMostLevels));
    return true;
  };
  Json json = Json::parse(text, check, /*allow_exceptions=*/false);
  if (json.is_discarded()) fail(origin + ": not valid JSON");
  return json;
}

std::string to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

JsonObject::JsonObject(const Json& json, std::string origin, std::string path)
    : json_(json), origin_(std::move(origin)), path_(std::move(path)) {
  if (!json.is_object()) fail(fmt::format("{}: not a JSON object", origin_));
}

void JsonObject::refuse(const std::string& key, const std::string& expected) const {
  fail(fmt::format("{}: '{}{}' must be {}", origin_, path_, key, expected));
}

const Json& JsonObject::value(const std::string& key, const std::string& expected,
                              bool (Json::*is)() const noexcept) const {
  const auto found = json_.find(key);
  if (found == json_.end() || !((*found).*is)()) refuse(key, expected);
  return *found;
}

JsonObject JsonObject::object(const std::string& key) const {
  return JsonObject(value(key, "an object", &Json::is_object), origin_, path_ + key + ".");
}

int64_t JsonObject::whole(const std::string& key, int64_t low, int64_t high) const {
  const bool bounded = high < std::numeric_limits<int64_t>::max();
  const std::string expected = bounded ? fmt::format("a whole number of {} ... {}", low, high)
                                       : fmt::format("a whole number of at least {}", low);
  const Json& number = value(key, expected, &Json::is_number_integer);
  const bool beyond = number.is_number_unsigned() && number.get<uint64_t>() > static_cast<uint64_t>(high);
  if (beyond || number.get<int64_t>() < low || number.get<int64_t>() > high) refuse(key, expected);
  return number.get<int64_t>();
}

uint64_t JsonObject::counter(const std::string& key) const {
  return value(key, "a whole number of at least 0", &Json::is_number_unsigned).get<uint64_t>();
}

double JsonObject::number(const std::string& key) const {
  return value(key, "a number", &Json::is_number).get<double>();
}

bool JsonObject::truth(const std::string& key) const {
  return value(key, "true or false", &Json::is_boolean).get<bool>();
}

std::string JsonObject::text(const std::string& key) const {
  return value(key, "a text", &Json::is_string).get<std::string>();
}

std::map<std::string, double> JsonObject::numbers() const {
  std::map<std::string, double> all;
  for (const auto& [key, value] : json_.items()) all[key] = number(key);
  return all;
}

const Json& JsonObject::list(const std::string& key) const { return value(key, "a list", &Json::is_array); }

std::vector<std::string> JsonObject::texts(const std::string& key) const {
  const std::string expected = "a list of texts";
  std::vector<std::string> all;
  for (const Json& item : value(key, expected, &Json::is_array)) {
    if (!item.is_string()) refuse(key, expected);
    all.push_back(item.get<std::string>());
  }
  return all;
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) const {
  const std::string expected = "a list of objects";
  std::vector<JsonObject> all;
  for (const Json& item : value(key, expected, &Json::is_array)) {
    if (!item.is_object()) refuse(key, expected);
    all.emplace_back(item, origin_, fmt::format("{}{}[{}].", path_, key, all.size()));
  }
  return all;
}

}  // namespace lapse
