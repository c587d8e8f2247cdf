//! Requests of Pyroscope's query API, in protobuf and JSON. Decoded requests round-trip through protobuf.

#![cfg_attr(fuzzing, no_main)]

use profcol_fuzz::fuzz_target;
use profcol_pyroscope::messages::{
    DiffRequest, LabelNamesRequest, LabelValuesRequest, ProfileTypesRequest,
    SelectMergeProfileRequest, SelectMergeStacktracesRequest, SelectSeriesRequest, SeriesRequest,
};
use profcol_pyroscope::{Codec, ConnectMethod, parse};
use prost::Message;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    check::<DiffRequest>(data);
    check::<LabelNamesRequest>(data);
    check::<LabelValuesRequest>(data);
    check::<ProfileTypesRequest>(data);
    check::<SelectMergeProfileRequest>(data);
    check::<SelectMergeStacktracesRequest>(data);
    check::<SelectSeriesRequest>(data);
    check::<SeriesRequest>(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = ConnectMethod::of_path(text);
        let _ = Codec::of_content_type(text);
        let _ = parse(text);
    }
});

fn check<T: Message + Default + DeserializeOwned>(data: &[u8]) {
    for codec in [Codec::Proto, Codec::Json] {
        let Ok(message) = codec.decode::<T>(data) else {
            continue;
        };
        // Compares bytes, because a number may be NaN.
        let wire = message.encode_to_vec();
        let again = Codec::Proto.decode::<T>(&wire);
        let again = again.expect("encoded requests can be decoded");
        assert_eq!(again.encode_to_vec(), wire);
    }
}
