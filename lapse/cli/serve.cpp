#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/core/process.h"
#include "lapse/serve/api.h"

namespace lapse {
namespace {

struct Arguments {
  ReadingOptions reading;
  std::vector<std::string> runs;
  HttpOptions http;
  ApiOptions api;
  int64_t seed = 1;
};

void check(const Command& verb, const Arguments& arguments) {
  if (arguments.runs.size() > 2) fail("at most two runs stand side by side; leave the others out");
  if (verb.count("--token") > 0 && arguments.http.token.size() < 8)
    fail("--token: give at least 8 characters; whoever guesses them may use the model");
  if (std::ranges::any_of(arguments.http.token, [](unsigned char c) { return c <= ' ' || c > '~'; }))
    fail("--token: give ASCII letters, digits and signs, without blanks: a browser sends others in another form");
  if (!is_loopback(arguments.http.host) && arguments.http.token.empty())
    fail(fmt::format("--host {}: others could then use the model; give a --token that they need, or leave --host out",
                     arguments.http.host));
}

/// One of two agents may be in a world that it was not trained in.
void tell_world(const Library& library) {
  if (library.runs() < 2 || !library.run(0).reader.config().environment()) return;
  const Json ours = environment_options(library.run(0)), theirs = environment_options(library.run(1));
  if (ours == theirs) return;
  std::cerr << fmt::format(
      "lapse: note: the runs were trained in environments with other options; side by side both act "
      "in lane A's, at first {} (B's: {})\n",
      to_text(ours), to_text(theirs));
}

/// As the fragment of an address has it: the page decodes + and % there.
std::string in_address(const std::string& text) {
  std::string all;
  for (const unsigned char c : text)
    all += std::isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~' ? std::string(1, static_cast<char>(c))
                                                                           : fmt::format("%{:02X}", c);
  return all;
}

int run(const Command& verb, Arguments arguments) {
  check(verb, arguments);
  Library library(arguments.reading, arguments.runs);
  if (verb.count("--temperature") > 0 && library.run(0).reader.config().environment())
    fail(
        "--temperature is for runs that write text; whether an agent takes the most likely actions is a control of the "
        "page");
  tell_world(library);
  Engine engine(library);
  arguments.api.version = version_text();
  arguments.api.seed = static_cast<uint64_t>(arguments.seed);
  Api api(engine, arguments.api);
  HttpServer server(arguments.http, [&](const HttpRequest& request) { return api.answer(request); });
  catch_interrupts();
  server.start();
  const std::string host =
      arguments.http.host.find(':') == std::string::npos ? arguments.http.host : "[" + arguments.http.host + "]";
  std::cout << fmt::format("http://{}:{}/{}", host, server.port(),
                           arguments.http.token.empty() ? "" : "#token=" + in_address(arguments.http.token))
            << std::endl;
  std::cerr << "lapse: open this address in a browser; Ctrl-C ends\n";
  std::jthread waiting([&](const std::stop_token& over) {
    while (!interrupted() && !over.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    engine.stop();
  });
  engine.run();
  server.stop();
  return 0;
}

}  // namespace

void add_serve(const Command& program, Action& action) {
  const Command verb = program.add_verb(
      "serve", "Watch a trained model remember: a page in the browser where you see it read, write and forget");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("run", arguments->runs, "folder of a run, or one of its checkpoints; two: side by side").required();
  verb.add_option("--port", arguments->http.port, "port to listen on; 0: any that is free")
      .check(whole_number(0, 65535))
      .shows_default();
  verb.add_option("--host", arguments->http.host,
                  "address to listen on; any but this machine's own (127.0.0.1, localhost, ::1) needs a --token")
      .shows_default();
  verb.add_option("--token", arguments->http.token, "secret that every request must contain").type_name("TEXT");
  verb.add_option("--temperature", arguments->api.sampling.temperature,
                  "below 1 safer, above 1 bolder; 0: the likeliest token. To begin with: the page can change it")
      .check(number(0.0, 100.0))
      .shows_default();
  verb.add_option("--seed", arguments->seed, "the same seed gives the same texts and episodes")
      .check(whole_number(0, int64_t{1} << 53))
      .shows_default();
  add_precision(verb, arguments->reading.precision);
  add_device(verb, arguments->reading.device);
  add_threads(verb, arguments->reading.threads);
  add_method_options(verb, arguments->reading);
  verb.footer(
      "The page needs no network. It ends with Ctrl-C. docs/serve.md describes the page and the JSON API, with\n"
      "POST /v1/completions in the style that other servers have.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = within_memory("lower --max-span or --budget", [=] { return run(verb, *arguments); });
  });
}

}  // namespace lapse
