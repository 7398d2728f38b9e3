// The JSON API of `lapse serve` (docs/serve.md), and its page.
#pragma once

#include <string>
#include <vector>

#include "lapse/read/sampler.h"
#include "lapse/serve/engine.h"
#include "lapse/serve/http.h"
#include "lapse/serve/json_fields.h"

namespace lapse {

struct ApiOptions {
  std::string version;
  SamplingOptions sampling{.temperature = 0.8};
  uint64_t seed = 1;
};

class Api {
 public:
  Api(Engine& engine, ApiOptions options) : engine_(engine), options_(std::move(options)) {}

  /// From any thread.
  HttpReply answer(const HttpRequest& request);

 private:
  using Parts = std::vector<std::string>;  // of the path
  HttpReply route(const HttpRequest& request, const Parts& parts);
  HttpReply sessions(const HttpRequest& request, const Parts& parts);
  HttpReply command(const HttpRequest& request, const std::string& id, const std::string& name);

  Json info();
  HttpReply begin(JsonFields fields);
  HttpReply events(const std::string& id);
  HttpReply page_of(const std::string& id);
  HttpReply complete(JsonFields fields);
  void settings(Session& session, JsonFields& fields);
  std::unique_ptr<Subject> subject(JsonFields& fields);
  std::vector<std::shared_ptr<const Opened>> open(const std::vector<LaneSettings>& lanes);
  Session& found(const std::string& id);

  Engine& engine_;
  ApiOptions options_;
};

}  // namespace lapse
