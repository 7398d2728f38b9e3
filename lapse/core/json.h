// JSON from outside: files beside a run, metadata of checkpoints.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lapse {

using Json = nlohmann::ordered_json;

/// Error that begins with `origin` if the text is no JSON, or nests more deeply than anything that lapse writes:
/// code that copies or prints such a value recurses once for every level.
Json parse_json(const std::string& text, const std::string& origin);

/// As text, `indent` spaces a level (-1: on one line). Bytes that are no UTF-8, as names of files may have them, become
/// U+FFFD; Json::dump throws on them.
std::string to_text(const Json& json, int indent = -1);

/// An object whose values are checked as they are taken: Error that names `origin` and the key if a value is missing or
/// of another kind. The JSON must outlive it.
class JsonObject {
 public:
  /// `path`: of the object within the whole, for messages: "sums.".
  JsonObject(const Json& json, std::string origin, std::string path = "");

  JsonObject object(const std::string& key) const;
  int64_t whole(const std::string& key, int64_t low, int64_t high = std::numeric_limits<int64_t>::max()) const;
  uint64_t counter(const std::string& key) const;
  double number(const std::string& key) const;
  bool truth(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::map<std::string, double> numbers() const;  ///< all of its values
  const Json& list(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<JsonObject> objects(const std::string& key) const;
  bool has(const std::string& key) const { return json_.contains(key); }
  bool has_text(const std::string& key) const { return has(key) && json_.at(key).is_string(); }
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const Json& value(const std::string& key, const std::string& expected, bool (Json::*is)() const noexcept) const;

  const Json& json_;
  std::string origin_, path_;
};

}  // namespace lapse
