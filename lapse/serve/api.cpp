#include "lapse/serve/api.h"

#include <fmt/format.h>

#include <random>

#include "lapse/core/json.h"
#include "lapse/forgetting/registry.h"
#include "lapse/serve/asked.h"
#include "lapse/serve/completion.h"
#include "lapse/serve/export.h"
#include "lapse/serve/failure.h"
#include "lapse/serve/page.h"
#include "lapse/serve/text.h"

namespace lapse {
namespace {

constexpr int64_t kMostTokens = 4096;  // of one completion
constexpr double kFastest = 1e6;       // tokens a second

HttpReply json(const Json& value) { return {.body = to_text(value)}; }

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 1; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Json fields_json(const Fields& fields) {
  Json all = Json::array();
  for (const auto& field : fields) {
    Json one = {{"name", field.name}, {"help", field.help}, {"value", field_to_toml(field)}, {"unit", field.unit_name}};
    if (!std::holds_alternative<std::string*>(field.value)) one["low"] = field.low, one["high"] = field.high;
    all.push_back(std::move(one));
  }
  return all;
}

/// What a model of this configuration can be read with, beside its own method, with the options that hold then.
Json methods_for(const Config& config) {
  Json methods = Json::array();
  for (const auto* entry : untrained_methods()) {
    const auto method = method_to_read_with(config, {.method = entry->name});
    methods.push_back(
        {{"name", entry->name}, {"help", entry->help}, {"options", fields_json(method->reading_fields())}});
  }
  return methods;
}

int64_t time_of(const HttpRequest& request) {
  const auto found = request.query.find("t");
  const std::string text = found == request.query.end() ? "" : found->second;
  if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != text.npos)
    throw Failure(400, "give the time of a token or step: ?t=12");
  return std::stoll(text);
}

WatchedText& text_of(Session& session) {
  auto* text = dynamic_cast<WatchedText*>(&session.subject());
  if (!text) throw Failure(409, "the run acts in an environment, and reads no text");
  return *text;
}

}  // namespace

HttpReply Api::answer(const HttpRequest& request) {
  try {
    return route(request, split(request.path));
  } catch (const Failure& failure) {
    return http_error(failure.status, failure.what());
  } catch (const Error& error) {
    return http_error(400, error.what());
  } catch (const std::exception& error) {
    return http_error(500, message_of(error));
  }
}

HttpReply Api::route(const HttpRequest& request, const Parts& parts) {
  const std::string all = request.method + " " + request.path;
  if (all == "GET /") return {.type = "text/html; charset=utf-8", .body = std::string(page())};
  if (all == "GET /api") return json(engine_.call([&] { return info(); }));
  if (all == "GET /v1/models") {
    Json models = Json::array();
    const Json known = engine_.call([&] { return info(); });
    for (const auto& run : known["runs"])
      if (run["kind"] == "text")  // completions are of text
        models.push_back({{"id", run["name"]}, {"object", "model"}, {"owned_by", "lapse"}});
    return json({{"object", "list"}, {"data", std::move(models)}});
  }
  if (all == "POST /v1/completions") return complete(JsonFields(request.body));
  if (parts.size() >= 2 && parts[0] == "api" && parts[1] == "sessions") return sessions(request, parts);
  throw Failure(404, "there is no " + all + "; docs/serve.md lists what there is");
}

HttpReply Api::sessions(const HttpRequest& request, const Parts& parts) {
  if (parts.size() == 2 && request.method == "POST") return begin(JsonFields(request.body));
  if (parts.size() == 3 && request.method == "DELETE")
    return engine_.call([&] { return found(parts[2]), engine_.remove(parts[2]), json(Json::object()); });
  if (parts.size() != 4) throw Failure(404, "there is no such address; docs/serve.md lists what there is");
  const std::string &id = parts[2], &name = parts[3];
  if (request.method == "POST") return command(request, id, name);
  if (name == "events") return events(id);
  if (name == "page") return page_of(id);
  if (name == "told") return json(engine_.call([&] { return found(id).subject().told(); }));
  if (name == "row") return json(engine_.call([&, t = time_of(request)] { return found(id).row(t); }));
  throw Failure(404, "a session has no '" + name + "' to get");
}

Session& Api::found(const std::string& id) {
  Session* session = engine_.find(id);
  if (!session) throw Failure(404, "there is no such session; it ends when its events are no longer read");
  return *session;
}

HttpReply Api::command(const HttpRequest& request, const std::string& id, const std::string& name) {
  JsonFields fields(request.body);
  const auto run = [&](auto work) {
    fields.finish();
    return json(engine_.call([&] {
      Session& session = found(id);
      work(session);
      return Json{{"time", session.time()}};
    }));
  };
  if (name == "read") {
    const std::string text = fields.text("text", "");
    const auto ids = ids_of(fields);
    const bool hold = fields.yes("hold", false);
    if (!text.empty() && !ids.empty()) throw Failure(400, "give text or ids, not both");
    return run([&](Session& session) {
      ids.empty() ? text_of(session).add(text) : text_of(session).add(ids);
      if (!hold && !session.playing()) session.read();
      if (hold) session.say_state();
    });
  }
  if (name == "play") {
    const int64_t steps = fields.whole("steps", 0, 0, int64_t{1} << 50);
    const double speed = fields.number("speed", 0, 0, kFastest);
    return run([&](Session& session) { session.play(steps, speed); });
  }
  if (name == "pause") return run([](Session& session) { session.pause(); });
  if (name == "step") return run([](Session& session) { session.step(); });
  if (name == "undo") {
    const int64_t time = fields.whole("to", -1, 0, int64_t{1} << 50);
    return run([&](Session& session) {
      if (time < 0) throw Failure(400, "to: give how many steps (tokens) are to remain");
      session.undo(time);
    });
  }
  if (name == "settings")
    return json(engine_.call([&] {
      Session& session = found(id);
      settings(session, fields);
      return Json{{"time", session.time()}};
    }));
  throw Failure(404, "a session knows no command '" + name + "'; there are read, play, pause, step, undo, settings");
}

Json Api::info() {
  Library& library = engine_.library();
  Json runs = Json::array();
  for (int64_t i = 0; i < library.runs(); ++i) {
    const Opened& run = library.run(i);
    const Config& config = run.reader.config();
    runs.push_back({{"name", run.name},
                    {"checkpoint", run.reader.checkpoint.path().string()},
                    {"kind", config.environment() ? "steps" : "text"},
                    {"method", run.reader.method->name()},
                    {"options", fields_json(run.reader.method->reading_fields())},
                    {"methods", methods_for(config)},
                    {"layers", run.model->layers().size()},
                    {"context", run.model->context()}});
  }
  return {{"version", options_.version},
          {"runs", std::move(runs)},
          {"as_trained", library.as_trained()},
          {"temperature", options_.sampling.temperature},
          {"kept", Session::kKept}};
}

std::vector<std::shared_ptr<const Opened>> Api::open(const std::vector<LaneSettings>& lanes) {
  std::vector<std::shared_ptr<const Opened>> opened;
  for (const auto& lane : lanes) {
    require_options(lane, engine_.library(), fmt::format("lanes[{}].options.", opened.size()));
    opened.push_back(engine_.library().open(lane));
  }
  return opened;
}

std::unique_ptr<Subject> Api::subject(JsonFields& fields) {
  const auto lanes = lanes_of(fields);
  const auto opened = open(lanes);
  if (opened[0]->reader.config().environment()) {
    const PlaySettings play = play_of(fields, {.seed = options_.seed});
    fields.finish();
    return std::make_unique<Play>(opened, lanes, play);
  }
  const SamplingOptions sampling = sampling_of(fields, options_.sampling);
  const uint64_t seed = seed_of(fields, options_.seed);
  fields.finish();
  return std::make_unique<WatchedText>(opened, lanes, sampling, seed);
}

HttpReply Api::begin(JsonFields fields) {
  return json(engine_.call([&] { return Json{{"session", engine_.add(subject(fields)).id}}; }));
}

// Lanes of other settings read the newest kExported tokens of the text anew, and show what they would remember of
// these. Agents whose settings differ begin anew.
void Api::settings(Session& session, JsonFields& fields) {
  const bool others = fields.has("lanes");
  const auto lanes = lanes_of(fields);
  if (const auto* play = dynamic_cast<const Play*>(&session.subject())) {
    const PlaySettings how = play_of(fields, play->settings());
    const bool anew = fields.yes("anew", false);
    fields.finish();
    const auto& wanted = others ? lanes : play->lanes();
    if (!anew && how == play->settings() && wanted == play->lanes()) return;
    auto other = std::make_unique<Play>(open(wanted), wanted, how);
    return session.replace(std::move(other));
  }
  WatchedText& text = text_of(session);
  const SamplingOptions sampling = sampling_of(fields, text.sampling());
  const bool anew = fields.yes("anew", false);
  fields.finish();
  auto opened = others ? open(lanes) : std::vector<std::shared_ptr<const Opened>>();
  text.set_sampling(sampling);
  if (anew && !others) opened = open(text.settings());
  if (others || anew) {
    auto other = text.with(opened, others ? lanes : text.settings(), anew ? 0 : kExported);
    session.replace(std::move(other));
  }
}

HttpReply Api::events(const std::string& id) {
  const auto outbox = engine_.call([&] {
    const auto found = this->found(id).outbox;
    if (!engine_.attach(id)) throw Failure(409, "the events of this session are being read already");
    return found;
  });
  return {.type = "text/event-stream",
          .stream = [outbox](std::string& text) { return outbox->take(text); },
          .closed =
              [this, id] {
                try {
                  engine_.post([this, id] { engine_.remove(id); });
                } catch (const Failure&) {  // it is stopping, and removes all
                }
              }};
}

HttpReply Api::page_of(const std::string& id) {
  const auto made = engine_.call([&] {
    Session& session = found(id);
    session.require_settled();
    auto made = export_of(session.subject());
    engine_.add(made);
    return made;
  });
  return {.type = "text/html; charset=utf-8",
          .stream = [made](std::string& text) { return made->take(text); },
          .status_at_end = [made] { return made->status(); },
          .closed = [made] { made->cancel(); }};
}

HttpReply Api::complete(JsonFields fields) {
  CompletionOptions asked;
  const std::string model = fields.text("model", "");
  asked.prompt = fields.text("prompt", "\n");
  asked.tokens = fields.whole("max_tokens", 16, 1, kMostTokens);
  asked.sampling = sampling_of(fields, {.temperature = 1});
  asked.seed = seed_of(fields, options_.seed);
  asked.stream = fields.yes("stream", false);
  asked.echo = fields.yes("echo", false);
  asked.stop = stop_of(fields);
  fields.whole("n", 1, 1, 1);
  fields.text("user", "");
  fields.finish();
  const auto made = engine_.call([&] {
    Library& library = engine_.library();
    while (!model.empty() && library.run(asked.run).name != model)
      if (++asked.run == library.runs()) throw Failure(404, "model: there is no run '" + model + "'");
    const auto opened = library.open({.run = asked.run});
    if (opened->reader.config().environment()) throw Failure(409, "the run acts in an environment, and writes no text");
    auto made = std::make_shared<Completion>(opened, asked, fmt::format("cmpl-{:x}", std::random_device()()));
    engine_.add(made);
    return made;
  });
  const std::function<int()> status = [made] { return made->status(); };
  return {.type = asked.stream ? "text/event-stream" : "application/json",
          .stream = [made](std::string& text) { return made->take(text); },
          .status_at_end = asked.stream ? nullptr : status,
          .closed = [made] { made->cancel(); }};
}

}  // namespace lapse
