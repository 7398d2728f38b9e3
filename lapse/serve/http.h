// A small HTTP server for one page and its JSON: requests in, replies out, every size, time and number bounded. Neither
// torch nor the HTTP library is seen here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lapse {

struct HttpLimits {
  size_t head = 16 << 10;       ///< bytes of the request line and all headers
  size_t headers = 64;          ///< how many of them
  size_t target = 2 << 10;      ///< bytes of path and query
  size_t body = 1 << 20;        ///< bytes
  double request_seconds = 5;   ///< until head and body have come
  double write_seconds = 3;     ///< that a reader may take nothing; on average it must take 64 KiB a second
  double stream_seconds = 6e4;  ///< a stream of events ends after that
  int64_t connections = 128;    ///< at a time
  int64_t streams = 32;         ///< of them, those that stay open
  double requests = 200;        ///< a second, on average
  double burst = 1000;          ///< at once, after a pause
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;  ///< 0: any that is free
  std::string token;    ///< asked of every request under /api and /v1, unless empty
  HttpLimits limits;
};

struct HttpRequest {
  std::string method, path, body;
  std::map<std::string, std::string> query;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json", body = {};
  /// If set, what follows instead of `body`: waits at most 100 ms for more text; false: that was all.
  std::function<bool(std::string& text)> stream = {};
  /// If set too, the stream is one answer: sent whole when it has ended, with this status. If that is not 200, it is
  /// the body of an http_error.
  std::function<int()> status_at_end = {};
  /// Called once when the stream has ended, whoever ended it.
  std::function<void()> closed = {};
};

/// {"error": {"message": ..., "code": ...}}
HttpReply http_error(int status, const std::string& message);

/// Loopback names and addresses only? Others can be reached from elsewhere.
bool is_loopback(const std::string& host);

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  /// Begins to listen, and answers from `start` on. Error if the port cannot be had. The handler is called from many
  /// threads; what it throws becomes a reply of 500.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  void start();
  /// Ends every connection, and returns once all are closed.
  void stop();
  int64_t port() const;
  int64_t connections() const;  ///< open now

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace lapse
