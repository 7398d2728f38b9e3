#include "lapse/serve/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lapse/serve/failure.h"

namespace lapse {
namespace {

constexpr int kDeepest = 8;

Json parsed(const std::string& text) {
  if (text.empty()) return Json::object();
  try {
    return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepest) throw Failure(400, "the body is nested too deeply");
      return true;
    });
  } catch (const Json::exception&) {
    throw Failure(400, "the body is no JSON");
  }
}

}  // namespace

JsonFields::JsonFields(const std::string& text) : JsonFields(parsed(text), "") {}

JsonFields::JsonFields(Json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {
  if (!object_.is_object())
    throw Failure(400, where_ + (where_.empty() ? "the body must be" : ": must be") + " a JSON object");
  if (!where_.empty()) where_ += ": ";
}

const Json* JsonFields::take(const std::string& name) {
  known_.push_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

double JsonFields::number(const std::string& name, double otherwise, double low, double high) {
  const Json* value = take(name);
  if (!value) return otherwise;
  const double x = value->is_number() ? value->get<double>() : NAN;
  if (!(x >= low && x <= high))
    throw Failure(400, fmt::format("{}{}: give a number of {} ... {}", where_, name, low, high));
  return x;
}

int64_t JsonFields::whole(const std::string& name, int64_t otherwise, int64_t low, int64_t high) {
  const Json* value = take(name);
  if (!value) return otherwise;
  const bool fits = value->is_number_integer() && !(value->is_number_unsigned() && value->get<uint64_t>() >> 63);
  if (const int64_t x = fits ? value->get<int64_t>() : 0; fits && x >= low && x <= high) return x;
  if (low == high) throw Failure(400, fmt::format("{}{}: only {} can be given", where_, name, low));
  throw Failure(400, fmt::format("{}{}: give a whole number of {} ... {}", where_, name, low, high));
}

bool JsonFields::yes(const std::string& name, bool otherwise) {
  const Json* value = take(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) throw Failure(400, fmt::format("{}{}: give true or false", where_, name));
  return value->get<bool>();
}

std::string JsonFields::text(const std::string& name, const std::string& otherwise) {
  const Json* value = take(name);
  if (!value) return otherwise;
  if (!value->is_string()) throw Failure(400, fmt::format("{}{}: give a text", where_, name));
  return value->get<std::string>();
}

Json JsonFields::any(const std::string& name) {
  const Json* value = take(name);
  return value ? *value : Json();
}

void JsonFields::finish() const {
  for (const auto& [name, value] : object_.items())
    if (std::ranges::find(known_, name) == known_.end())
      throw Failure(400, fmt::format("{}there is no field '{}'{}", where_, name, did_you_mean(name, known_)));
}

}  // namespace lapse
