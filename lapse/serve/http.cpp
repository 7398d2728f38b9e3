// The only file that sees cpp-httplib, and it sees no torch.
//
// Debian's 0.11.4 has CVE-2025-46728 (chunked bodies pass its limit), CVE-2025-53628 and CVE-2025-52887 (headers of any
// length and number). None is reached here: the head and the body are read, within limits of size and time, before the
// library sees a byte of them, and chunked or compressed bodies are refused (http_head.cpp). The library parses what is
// then known to be small and regular, and writes the reply. One request per connection: nothing can be smuggled behind
// the first.
#include "lapse/serve/http.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/serve/connection.h"
#include "lapse/serve/http_head.h"

namespace lapse {
namespace {

using Clock = Connection::Clock;

/// A request that has come whole, for the library: it reads from memory and writes to the connection.
class Received : public httplib::Stream {
 public:
  Received(Connection& connection, std::string head, double seconds)
      : connection_(connection), head_(std::move(head)), seconds_(seconds) {}

  bool is_readable() const override { return at_ < head_.size(); }
  bool is_writable() const override { return !connection_.left(); }
  ssize_t read(char* to, size_t size) override {
    const size_t count = head_.copy(to, size, at_);
    at_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    return connection_.write(from, size, seconds_) ? static_cast<ssize_t>(size) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return connection_.socket(); }

 private:
  Connection& connection_;
  std::string head_;
  double seconds_;
  size_t at_ = 0;
};

/// So many requests a second, and bursts.
class Rate {
 public:
  Rate(double each, double burst) : each_(each), burst_(burst), left_(burst) {}
  bool take() {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    left_ = std::min(burst_, left_ + each_ * std::chrono::duration<double>(now - last_).count());
    last_ = now;
    return left_ >= 1 ? (left_ -= 1, true) : false;
  }

 private:
  std::mutex mutex_;
  double each_, burst_, left_;
  Clock::time_point last_ = Clock::now();
};

thread_local bool refusing = false;                  // this connection is one too many
thread_local const std::string* received = nullptr;  // the body of the request that the library handles
thread_local const Connection* connected = nullptr;  // who sent it

/// A thread for each connection; those above the limit are turned away by the thread that accepts.
class Threads {
 public:
  Threads(int64_t most, std::atomic<int64_t>& open) : most_(most), open_(open) {}
  /// Waits for all.
  ~Threads() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return open_ == 0; });
  }

  void start(const std::function<void()>& work) {
    if (open_ >= most_) return refuse(work);
    ++open_;
    const auto one = [this, work] {  // a copy: where no thread starts, it is still needed
      attempt(work);
      const std::lock_guard lock(mutex_);
      --open_;
      none_.notify_all();
    };
    try {
      std::thread(one).detach();
    } catch (const std::exception&) {  // no more threads, or no memory for one
      --open_;
      refuse(work);
    }
  }

 private:
  static void refuse(const std::function<void()>& work) {
    refusing = true;
    attempt(work);
    refusing = false;
  }
  /// Where memory is short, this connection is lost, and the server goes on.
  static void attempt(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception&) {
    }
  }

  int64_t most_;
  std::atomic<int64_t>& open_;
  std::mutex mutex_;
  std::condition_variable none_;
};

const char* reason(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

constexpr const char* kSafe =
    "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n";

}  // namespace

HttpReply http_error(int status, const std::string& message) {
  const nlohmann::ordered_json error = {{"error", {{"message", message}, {"code", status}}}};
  return {status, "application/json", to_text(error)};
}

class HttpServer::Server : public httplib::Server {
 public:
  Server(const HttpOptions& options, HttpServer::Handler handler)
      : options_(options), handler_(std::move(handler)), rate_(options.limits.requests, options.limits.burst) {
    // Not the library's own, which would let another program listen on our port too.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      const int bytes = 32 << 10;  // inherited by connections: what waits in the kernel is late too
      ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    });
    set_tcp_nodelay(true);
    // All is answered before the library looks for a route, or for a body.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return HandlerResponse::Handled;
    });
    for (const char* line = kSafe; *line != '\0';) {
      const std::string_view all(line);
      const size_t colon = all.find(": "), end = all.find("\r\n");
      safe_.emplace(std::string(all.substr(0, colon)), std::string(all.substr(colon + 2, end - colon - 2)));
      line += end + 2;
    }
    set_default_headers(safe_);
    errno = 0;
    port_ = options.port == 0 ? bind_to_any_port(options.host) : options.port;
    if (options.port == 0 ? port_ <= 0 : !bind_to_port(options.host, static_cast<int>(options.port)))
      fail(errno == 0 ? fmt::format("cannot listen on {}: there is no such address; give another --host", options.host)
                      : fmt::format("cannot listen on {} port {}: {}; give another --port, or 0 for any that is free",
                                    options.host, options.port, std::strerror(errno)));
    ::listen(svr_sock_, 256);  // the library's 5 would let connections that come together wait for seconds
    ::fcntl(svr_sock_, F_SETFL, ::fcntl(svr_sock_, F_GETFL) | O_NONBLOCK);  // what was there may be gone
  }

  void start() {
    listener_ = std::thread([this] { accept_all(); });
  }
  void end() {
    stopping_ = true;
    if (listener_.joinable()) listener_.join();
    close_listener();
  }
  int64_t port() const { return port_; }
  int64_t open() const { return open_; }

 private:
  // Not the library's loop, which ends for good where one connection cannot be had: without descriptors or memory, or
  // because the network took it back. The next one may do.
  void accept_all() {
    Threads threads(options_.limits.connections, open_);
    while (!stopping_) {
      pollfd comes{svr_sock_, POLLIN, 0};
      if (::poll(&comes, 1, /*milliseconds=*/50) <= 0) continue;
      const int socket = ::accept4(svr_sock_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket >= 0)
        threads.start([this, socket] { process_and_close_socket(socket); });
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    close_listener();
  }
  void close_listener() {
    if (const int socket = svr_sock_.exchange(INVALID_SOCKET); socket != INVALID_SOCKET) ::close(socket);
  }

  // In the library private, but virtual: its own TLS server does the same.
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, stopping_);
    std::string text, body;
    const HttpReply refusal = refusing       ? http_error(503, "too many connections; try again later")
                              : rate_.take() ? receive(connection, text, body)
                                             : http_error(429, "too many requests; try again later");
    if (refusal.status != 0) {
      refuse(connection, refusal, text);
      return false;
    }
    received = &body, connected = &connection;
    bool closed = false;
    Received whole(connection, std::move(text), options_.limits.write_seconds);
    process_request(whole, /*close_connection=*/true, closed, nullptr);
    connection.finish(refusing ? 0 : 0.2);
    return true;
  }

  HttpReply receive(Connection& connection, std::string& text, std::string& body) const;
  void refuse(Connection& connection, const HttpReply& reply, const std::string& text) const;
  void answer(const httplib::Request& request, httplib::Response& response);
  void stream(HttpReply reply, httplib::Response& response);
  void send_whole(const HttpReply& reply, httplib::Response& response);

  HttpOptions options_;
  HttpServer::Handler handler_;
  Rate rate_;
  httplib::Headers safe_;
  std::atomic<int64_t> open_ = 0, streams_ = 0;
  std::atomic<bool> stopping_ = false;
  int64_t port_ = 0;
  std::thread listener_;
};

/// Reads the head and the body, or says why not (status 0: all is well). `text` becomes what the library is to parse.
HttpReply HttpServer::Server::receive(Connection& connection, std::string& text, std::string& body) const {
  const HttpLimits& limits = options_.limits;
  const auto until = Connection::after(limits.request_seconds);
  char some[4096];
  size_t end = text.npos;
  while ((end = text.find("\r\n\r\n", text.size() < sizeof some + 3 ? 0 : text.size() - sizeof some - 3)) ==
         text.npos) {
    if (text.size() > limits.head) return http_error(431, "the head of the request is too large");
    const size_t got = connection.read(some, sizeof some, until);
    if (got == 0) return http_error(408, "the request did not come in time");
    text.append(some, got);
  }
  if (end > limits.head) return http_error(431, "the head of the request is too large");
  body = text.substr(end + 4);
  text.resize(end + 4);
  const HttpHead head = read_head(text, limits);
  if (head.status != 0) return http_error(head.status, head.message);
  for (const Refusal& refusal : {check_origin(head, options_, port_), check_token(head, options_)})
    if (refusal.status != 0) return http_error(refusal.status, refusal.message);
  while (body.size() < head.length) {
    const size_t got = connection.read(some, std::min(sizeof some, head.length - body.size()), until);
    if (got == 0) return http_error(408, "the body did not come in time");
    body.append(some, got);
  }
  body.resize(head.length);  // one request per connection: what follows is none
  // The library needs no header, and refuses lines of 8 KiB, as cookies of all that listens on localhost may be.
  text = fmt::format("{}\r\nHost: {}\r\n\r\n", text.substr(0, text.find("\r\n")), head.header("host"));
  return {.status = 0};
}

/// People get a page, programs JSON.
void HttpServer::Server::refuse(Connection& connection, const HttpReply& reply, const std::string& text) const {
  std::string type = reply.type, body = reply.body;
  if (text.find("Accept: text/html") != text.npos || text.find("accept: text/html") != text.npos) {
    type = "text/html; charset=utf-8";
    const auto message = nlohmann::json::parse(body)["error"]["message"].get<std::string>();  // of our own words alone
    body = fmt::format("<!DOCTYPE html><title>{0}</title><h1>{0}</h1><p>{1}</p>\n", reason(reply.status), message);
  }
  const std::string all = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}{}Connection: close\r\n\r\n{}", reply.status,
      reason(reply.status), type, body.size(), kSafe, reply.status == 401 ? "WWW-Authenticate: Bearer\r\n" : "",
      reply.status == 429 || reply.status == 503 ? "Retry-After: 1\r\n" : "", body);
  // The thread that accepts must not wait for anyone.
  const double seconds = refusing ? 0 : options_.limits.write_seconds;
  if (connection.write(all.data(), all.size(), seconds)) connection.finish(refusing ? 0 : 0.2);
}

void HttpServer::Server::answer(const httplib::Request& request, httplib::Response& response) {
  HttpRequest asked{request.method, request.path, *received, {}};
  for (const auto& [name, value] : request.params) asked.query.emplace(name, value);
  HttpReply reply;
  try {
    reply = handler_(asked);
  } catch (const std::exception& error) {
    reply = http_error(500, error.what());
  }
  if (reply.stream && ++streams_ > options_.limits.streams) {
    --streams_;
    if (reply.closed) reply.closed();
    reply = http_error(503, fmt::format("{} streams are open already; close one", options_.limits.streams));
  }
  response.status = reply.status;
  if (reply.status_at_end) return send_whole(reply, response);
  if (reply.stream) return stream(std::move(reply), response);
  response.set_content(reply.body, reply.type);
}

void HttpServer::Server::send_whole(const HttpReply& reply, httplib::Response& response) {
  const auto until = Connection::after(options_.limits.stream_seconds);
  std::string all, text;
  bool whole = false;
  for (; !whole && !stopping_ && Clock::now() < until && !connected->left(); all += text)
    text.clear(), whole = !reply.stream(text);
  --streams_;
  if (reply.closed) reply.closed();
  const HttpReply end =
      whole ? HttpReply{reply.status_at_end(), reply.type, all}
            : http_error(503, "the answer was broken off; try again, and keep the connection open until it has come");
  response.status = end.status;
  response.set_content(end.body, end.status == 200 ? end.type : "application/json");
}

void HttpServer::Server::stream(HttpReply reply, httplib::Response& response) {
  const auto all = std::make_shared<HttpReply>(std::move(reply));
  const auto until = Connection::after(options_.limits.stream_seconds);
  response.set_chunked_content_provider(
      all->type,
      [this, all, until](size_t, httplib::DataSink& sink) {
        std::string text;
        const bool more = all->stream(text) && !stopping_ && Clock::now() < until;
        if (!sink.is_writable() || (!text.empty() && !sink.write(text.data(), text.size()))) return false;
        if (!more) sink.done();
        return true;
      },
      [this, all](bool) {
        --streams_;
        if (all->closed) all->closed();
      });
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : server_(std::make_unique<Server>(options, std::move(handler))) {}
HttpServer::~HttpServer() { stop(); }
void HttpServer::start() { server_->start(); }
void HttpServer::stop() { server_->end(); }
int64_t HttpServer::port() const { return server_->port(); }
int64_t HttpServer::connections() const { return server_->open(); }

}  // namespace lapse
