#include "lapse/interop/golden_value.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lapse/core/error.h"

namespace lapse {

const std::string& golden_text(const GoldenMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) fail("the golden file's metadata lacks '" + key + "'");
  return found->second;
}

namespace {

template <class T>
T number(const GoldenMetadata& metadata, const std::string& key) {
  const std::string& value = golden_text(metadata, key);
  T result{};
  const auto end = value.data() + value.size();
  const auto parsed = std::from_chars(value.data(), end, result);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    fail("the golden file's metadata: '" + key + "' is '" + value + "', not a number");
  return result;
}

}  // namespace

template <>
int64_t golden_value(const GoldenMetadata& metadata, const std::string& key) {
  return number<int64_t>(metadata, key);
}

template <>
double golden_value(const GoldenMetadata& metadata, const std::string& key) {
  return number<double>(metadata, key);
}

template <>
bool golden_value(const GoldenMetadata& metadata, const std::string& key) {
  const std::string& value = golden_text(metadata, key);
  if (value != "True" && value != "False")
    fail("the golden file's metadata: '" + key + "' is '" + value + "', not True or False");
  return value == "True";
}

std::vector<int64_t> golden_list(const GoldenMetadata& metadata, const std::string& key) {
  const std::string& value = golden_text(metadata, key);
  const auto json = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
  const auto integer = [](const nlohmann::json& item) { return item.is_number_integer(); };
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), integer))
    fail("the golden file's metadata: '" + key + "' is '" + value + "', not a list of integers");
  return json.get<std::vector<int64_t>>();
}

}  // namespace lapse
