// The fields of a JSON object that someone sent: each is asked for once, with its bounds; what is left over is an
// error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lapse/serve/subject.h"

namespace lapse {

class JsonFields {
 public:
  /// Failure (400) if the text is no JSON object, or a deep one. "": {}.
  explicit JsonFields(const std::string& text);
  /// `where`: begins messages.
  JsonFields(Json object, std::string where);

  bool has(const std::string& name) const { return object_.contains(name) && !object_[name].is_null(); }
  double number(const std::string& name, double otherwise, double low, double high);
  int64_t whole(const std::string& name, int64_t otherwise, int64_t low, int64_t high);
  bool yes(const std::string& name, bool otherwise);
  std::string text(const std::string& name, const std::string& otherwise);
  Json any(const std::string& name);  ///< null: absent
  /// Failure (400) if there are fields that were not asked for.
  void finish() const;

 private:
  const Json* take(const std::string& name);

  Json object_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace lapse
