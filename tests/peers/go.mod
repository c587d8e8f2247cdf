module peers

go 1.25.0

require (
	github.com/summerwind/h2spec v2.2.1+incompatible
	go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development v0.4.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa
	google.golang.org/grpc v1.83.2
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	go.opentelemetry.io/proto/slim/otlp v1.11.0 // indirect
	go.opentelemetry.io/proto/slim/otlp/profiles/v1development v0.4.0 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
