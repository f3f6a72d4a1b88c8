//! Configuration of a QUIC lane: what both ends agree on, and what each decides for itself
//! (windows, MTU, timers, keys).
//!
//! Takes TLS configurations from `tls`, the route's MTU from `socket`; gives quinn its own. Opens
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::{KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    VarInt,
};

use super::BLOCK_BYTES;
use super::controller::Factory;
use super::figures::Figures;
use super::socket::PAYLOAD_MAX;
use crate::error::NetError;

/// The bytes that a lane's end may first have on their way or unread once the lane has joined.
pub(crate) const FIRST_WINDOW_BYTES: usize = 4 << 20;
/// The same before the lane has joined: the dialler may be anybody.
pub(crate) const STRANGERS_WINDOW_BYTES: usize = 64 << 10;

/// The configuration of an endpoint, dialling or listening.
pub(crate) fn endpoint() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    // It fails below 1200 bytes alone.
    let _ = config.max_udp_payload_size(PAYLOAD_MAX);
    // Native lanes share the port, and are told apart by the bit that it would change.
    config.grease_quic_bit(false);
    config
}

/// The configuration of one dialled connection.
pub(crate) fn client(
    tls: Arc<rustls::ClientConfig>,
    figures: &Arc<Figures>,
    payload_max: u16,
) -> Result<ClientConfig, NetError> {
    let crypto = QuicClientConfig::try_from(tls).map_err(|_| NetError::Crypto { doing: "set QUIC up" })?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport(figures, payload_max)));
    Ok(config)
}

/// The configuration of accepted connections; each gets a [`transport`] of its own besides.
pub(crate) fn server(tls: Arc<rustls::ServerConfig>) -> Result<ServerConfig, NetError> {
    let crypto = QuicServerConfig::try_from(tls).map_err(|_| NetError::Crypto { doing: "set QUIC up" })?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    // They are taken up at once; quinn would hold 100 MiB of earlier data.
    config.max_incoming(INCOMING_MAX).incoming_buffer_size(64 << 10).incoming_buffer_size_total(4 << 20);
    Ok(config)
}

/// The transport settings of one connection.
pub(crate) fn transport(figures: &Arc<Figures>, payload_max: u16) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(packets_per_ack(payload_max))).max_ack_delay(Some(ACK_DELAY_MAX));
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(payload_max).interval(DISCOVER_EVERY);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(blocks(STRANGERS_WINDOW_BYTES))
        .stream_receive_window(varint(BLOCK_BYTES))
        .receive_window(varint(STRANGERS_WINDOW_BYTES))
        .send_window(FIRST_WINDOW_BYTES as u64)
        // Blocks go out one after the other: the other end reads them so.
        .send_fairness(false)
        .max_idle_timeout(IdleTimeout::try_from(IDLE_MAX).ok())
        .keep_alive_interval(Some(Duration::from_secs(KEEPALIVE_INTERVAL_SECONDS)))
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acks))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(Factory(figures.clone())));
    transport
}

/// Packets that hold [`BYTES_PER_ACK`], where the path takes the largest that the route does.
pub(super) fn packets_per_ack(payload_max: u16) -> u32 {
    (BYTES_PER_ACK / u32::from(payload_max).max(1)).max(PACKETS_PER_ACK_MIN)
}

/// The streams that a window admits: its blocks, and the one whose end was not yet read.
pub(crate) fn blocks(window: usize) -> VarInt {
    VarInt::from_u32(u32::try_from(window / BLOCK_BYTES).unwrap_or(u32::MAX).saturating_add(1))
}

pub(crate) fn varint(bytes: usize) -> VarInt {
    VarInt::from_u64(bytes as u64).unwrap_or(VarInt::MAX)
}

/// The time between searches for a larger MTU: probes may be lost to a queue that is full, and then
/// another search finds it. Quinn's default is ten minutes.
const DISCOVER_EVERY: Duration = Duration::from_secs(10);
/// First packets of connections that may wait for their greeting.
const INCOMING_MAX: usize = 1024;
/// Bytes that one acknowledgement covers; quinn's default is two packets. Each acknowledgement
/// wakes threads at both ends. With far fewer of them a sender learns late what was lost, and its
/// window has to hold the bytes that wait for one: half of the slack that [`super::rate`] adds.
const BYTES_PER_ACK: u32 = 96 << 10;
const PACKETS_PER_ACK_MIN: u32 = 10;
/// The time for which the other end may wait for so many bytes. Quinn's default is 25 ms, in which
/// a lane at a low rate, whose window holds less than an acknowledgement covers, would stand still.
const ACK_DELAY_MAX: Duration = Duration::from_micros(5_000);
/// A silent connection lasts as long as one over TCP.
const IDLE_MAX: Duration =
    Duration::from_secs(KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_PROBES as u64);
