#include "lapse/core/config_json.h"

namespace lapse {

Json to_json(const Fields& fields) {
  Json json = Json::object();
  for (const Field& field : fields) std::visit([&](const auto* value) { json[field.name] = *value; }, field.value);
  return json;
}

}  // namespace lapse
