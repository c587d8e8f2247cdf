// Prints the fields of the messages, and the values of the enumerations, that profcol declares by hand, from the
// descriptors in the packages of the projects that define them.
//
// A field is a line `message field number type cardinality`, a value is a line `enumeration value number`.
package main

import (
	"fmt"
	"log"

	_ "github.com/containerd/containerd/api/events"
	_ "github.com/containerd/containerd/api/services/containers/v1"
	_ "github.com/containerd/containerd/api/services/events/v1"
	_ "github.com/containerd/containerd/api/services/namespaces/v1"
	_ "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	_ "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	_ "github.com/grafana/pyroscope/api/gen/proto/go/settings/v1"
	_ "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	_ "go.opentelemetry.io/proto/otlp/resource/v1"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var names = []protoreflect.FullName{
	"containerd.events.ContainerCreate",
	"containerd.events.ContainerDelete",
	"containerd.events.ContainerUpdate",
	"containerd.services.containers.v1.Container",
	"containerd.services.containers.v1.GetContainerRequest",
	"containerd.services.containers.v1.GetContainerResponse",
	"containerd.services.containers.v1.ListContainerMessage",
	"containerd.services.events.v1.SubscribeRequest",
	"containerd.services.namespaces.v1.ListNamespacesResponse",
	"containerd.services.namespaces.v1.Namespace",
	"containerd.types.Envelope",
	"google.protobuf.Any",
	"google.protobuf.Duration",
	"google.rpc.RetryInfo",
	"google.rpc.Status",
	"google.v1.Function",
	"google.v1.Line",
	"google.v1.Location",
	"google.v1.Mapping",
	"google.v1.Profile",
	"google.v1.Sample",
	"google.v1.ValueType",
	"opentelemetry.proto.common.v1.AnyValue",
	"opentelemetry.proto.common.v1.ArrayValue",
	"opentelemetry.proto.common.v1.KeyValue",
	"opentelemetry.proto.resource.v1.Resource",
	"querier.v1.DiffRequest",
	"querier.v1.DiffResponse",
	"querier.v1.FlameGraph",
	"querier.v1.FlameGraphDiff",
	"querier.v1.Level",
	"querier.v1.PprofProfile",
	"querier.v1.ProfileFormat",
	"querier.v1.ProfileTypesRequest",
	"querier.v1.ProfileTypesResponse",
	"querier.v1.SelectMergeProfileRequest",
	"querier.v1.SelectMergeStacktracesRequest",
	"querier.v1.SelectMergeStacktracesResponse",
	"querier.v1.SelectSeriesRequest",
	"querier.v1.SelectSeriesResponse",
	"querier.v1.SeriesRequest",
	"querier.v1.SeriesResponse",
	"runtime.v1.Container",
	"runtime.v1.ContainerEventResponse",
	"runtime.v1.ContainerEventType",
	"runtime.v1.ContainerFilter",
	"runtime.v1.ContainerMetadata",
	"runtime.v1.ImageSpec",
	"runtime.v1.ListContainersRequest",
	"runtime.v1.ListContainersResponse",
	"runtime.v1.VersionResponse",
	"settings.v1.GetSettingsResponse",
	"types.v1.GetProfileStatsResponse",
	"types.v1.GoPGO",
	"types.v1.LabelNamesRequest",
	"types.v1.LabelNamesResponse",
	"types.v1.LabelPair",
	"types.v1.LabelValuesRequest",
	"types.v1.LabelValuesResponse",
	"types.v1.Labels",
	"types.v1.Location",
	"types.v1.Point",
	"types.v1.ProfileType",
	"types.v1.Series",
	"types.v1.StackTraceSelector",
	"types.v1.TimeSeriesAggregationType",
}

func main() {
	for _, name := range names {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		switch found := descriptor.(type) {
		case protoreflect.MessageDescriptor:
			fields := found.Fields()
			for i := range fields.Len() {
				field := fields.Get(i)
				fmt.Println(name, field.Name(), field.Number(), typeOf(field), cardinality(field))
			}
		case protoreflect.EnumDescriptor:
			values := found.Values()
			for i := range values.Len() {
				fmt.Println(name, values.Get(i).Name(), values.Get(i).Number())
			}
		default:
			log.Fatalf("%s is neither a message nor an enumeration", name)
		}
	}
}

func typeOf(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return fmt.Sprintf("map<%s,%s>", typeOf(field.MapKey()), typeOf(field.MapValue()))
	case field.Message() != nil:
		return "message:" + string(field.Message().FullName())
	case field.Enum() != nil:
		return "enum:" + string(field.Enum().FullName())
	default:
		return field.Kind().String()
	}
}

// A member of a oneof is `oneof:NAME`. A field that is optional has presence, unlike a singular one.
func cardinality(field protoreflect.FieldDescriptor) string {
	oneof := field.ContainingOneof()
	switch {
	case field.Cardinality() == protoreflect.Repeated:
		return "repeated"
	case oneof != nil && !oneof.IsSynthetic():
		return "oneof:" + string(oneof.Name())
	case field.HasOptionalKeyword():
		return "optional"
	default:
		return "singular"
	}
}
