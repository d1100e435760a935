package server

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// FuzzDecode holds the decoder against the official one, for any bytes: what that
// reads is read alike, and what it refuses is refused; but text need not be UTF-8.
func FuzzDecode(f *testing.F) {
	b, err := proto.Marshal(sampleRequest())
	if err != nil {
		f.Fatal(err)
	}
	official := newOfficial(f)
	for _, message := range []string{
		string(b),
		"\x0a\x01\xff",                         // a domain that is not UTF-8
		"\x12\x80\x80\x80\x01",                 // a length past the end
		"\x0b\x0c\x0a\x01d",                    // an unknown group
		string(b) + "\x80\x80\x80\x80\x10\x00", // a field's number that is too large
		string(b) + "\x00\x00",                 // one that is too small
		string(b) + "\x0e",                     // a kind that there is not
		// A limit of its own in two parts, of which the second has an empty multiplier.
		"\x0a\x01d\x12\x13\x0a\x03\x0a\x01a\x12\x08\x08\x05\x10\x01\x1a\x02\x08\x07\x12\x02\x1a\x00",
		"\x0a\x01d\x12\x05\x0a\x03\x0a\x01a\x18\x96\x80\x80\x80\x80\x01",     // hits past 32 bits
		"\x0a\x01d\x12\x0b\x0a\x03\x0a\x01a\x1a\x02\x08\x07\x20\x01\x0d1234", // a refund, and fields of other kinds
	} {
		f.Add([]byte(message), uint8(0))
		f.Add([]byte(message), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) { official.check(t, b, cut) })
}

// FuzzDecodeOfMessages does so for messages that are sound, but not as anybody's
// encoder writes them: fields out of order, said again, in parts, of other kinds and
// unknown ones, numbers longer than they need be, groups.
func FuzzDecodeOfMessages(f *testing.F) {
	official := newOfficial(f)
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 60 {
		data := make([]byte, 20+10*n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		w := &oddWriter{script: script}
		cut := w.byte()
		message := []byte("\x0a\x01d") // a domain, which may be said again
		for len(w.script) > 0 {
			message = append(message, w.message((*rls.RateLimitRequest)(nil).ProtoReflect().Descriptor(), 0)...)
		}
		if !official.check(t, message, cut) {
			t.Fatalf("the official decoder refuses %q", message)
		}
	})
}

// official decodes as the official decoder does, but takes any bytes as text: its
// messages have bytes in their place.
type official struct {
	request protoreflect.MessageDescriptor
}

func newOfficial(t testing.TB) official {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("bytes.proto"), Package: proto.String("bytes"), Syntax: proto.String("proto3")}
	addWithBytes(file, (*rls.RateLimitRequest)(nil).ProtoReflect().Descriptor())
	built, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return official{built.Messages().Get(0)}
}

// addWithBytes adds a message and those in it to a file, with bytes for text and
// numbers for enums.
func addWithBytes(file *descriptorpb.FileDescriptorProto, m protoreflect.MessageDescriptor) {
	name := func(m protoreflect.MessageDescriptor) string {
		return strings.ReplaceAll(string(m.FullName()), ".", "_")
	}
	for _, known := range file.MessageType {
		if known.GetName() == name(m) {
			return
		}
	}
	own := &descriptorpb.DescriptorProto{Name: proto.String(name(m))}
	file.MessageType = append(file.MessageType, own)
	for i := range m.Fields().Len() {
		field := protodesc.ToFieldDescriptorProto(m.Fields().Get(i))
		field.Options, field.JsonName, field.TypeName = nil, nil, nil
		switch field.GetType() {
		case descriptorpb.FieldDescriptorProto_TYPE_STRING:
			field.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		case descriptorpb.FieldDescriptorProto_TYPE_ENUM:
			field.Type = descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
		case descriptorpb.FieldDescriptorProto_TYPE_MESSAGE:
			inner := m.Fields().Get(i).Message()
			field.TypeName = proto.String(".bytes." + name(inner))
			addWithBytes(file, inner)
		}
		own.Field = append(own.Field, field)
	}
}

func (o official) decode(b []byte) (*rls.RateLimitRequest, error) {
	read := dynamicpb.NewMessage(o.request)
	if err := proto.Unmarshal(b, read); err != nil {
		return nil, err
	}
	want := new(rls.RateLimitRequest)
	copyMessage(want.ProtoReflect(), read)
	return want, nil
}

// copyMessage copies a message with bytes to one with text.
func copyMessage(to, from protoreflect.Message) {
	from.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		own := to.Descriptor().Fields().ByNumber(field.Number())
		switch {
		case own.IsList():
			for i := range v.List().Len() {
				copyMessage(to.Mutable(own).List().AppendMutable().Message(), v.List().Get(i).Message())
			}
		case own.Kind() == protoreflect.MessageKind:
			copyMessage(to.Mutable(own).Message(), v.Message())
		case own.Kind() == protoreflect.StringKind:
			to.Set(own, protoreflect.ValueOfString(string(v.Bytes())))
		case own.Kind() == protoreflect.EnumKind:
			to.Set(own, protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.Int())))
		default:
			to.Set(own, v)
		}
		return true
	})
}

// check decodes b as the transport hands it over, in two buffers if cut is odd, into
// a call that was used before. It tells whether the official decoder takes b.
func (o official) check(t testing.TB, b []byte, cut uint8) bool {
	t.Helper()
	pool := new(calls)
	c := decoded(t, sampleRequest())
	pool.put(c)
	c = pool.get()
	buffers := mem.BufferSlice{mem.SliceBuffer(b)}
	if at := int(cut); cut%2 == 1 && at < len(b) {
		buffers = mem.BufferSlice{mem.SliceBuffer(b[:at]), mem.SliceBuffer(b[at:])}
	}
	c.decode(buffers)
	want, err := o.decode(b)
	if err != nil {
		if c.fault == nil {
			t.Fatalf("%q is taken, as %+v, and is none: %v", b, c.request, err)
		}
		return false
	}
	if is := sound(want); is != (c.fault == nil) {
		t.Fatalf("a request of which it is %t that it is sound: %v", is, c.fault)
	}
	if c.fault == nil {
		checkAgainst(t, want, c)
	}
	strict := new(rls.RateLimitRequest)
	if proto.Unmarshal(b, strict) == nil {
		strict = proto.Clone(strict).(*rls.RateLimitRequest)
		forgetUnknown(strict.ProtoReflect())
		if !proto.Equal(strict, want) {
			t.Fatalf("with bytes for text %v is read, not %v", want, strict)
		}
	}
	return true
}

func forgetUnknown(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsList():
			for i := range v.List().Len() {
				forgetUnknown(v.List().Get(i).Message())
			}
		case field.Kind() == protoreflect.MessageKind:
			forgetUnknown(v.Message())
		}
		return true
	})
}

// oddWriter writes messages in all the ways that the wire format allows, as a fuzzer's
// bytes say.
type oddWriter struct{ script []byte }

func (w *oddWriter) byte() byte {
	if len(w.script) == 0 {
		return 0
	}
	b := w.script[0]
	w.script = w.script[1:]
	return b
}

// message is some fields of a message, of those that it has and of others.
func (w *oddWriter) message(m protoreflect.MessageDescriptor, depth int) (b []byte) {
	for range 1 + w.byte()%4 {
		field := m.Fields().Get(int(w.byte()) % m.Fields().Len())
		switch how := w.byte(); {
		case how < 30:
			b = w.unknown(b, protowire.Number(100+int(how)), 0)
		case how < 50:
			b = w.unknown(b, field.Number(), 0) // known, but maybe of another kind
		case field.Kind() == protoreflect.MessageKind && depth < 4:
			b = append(w.tag(b, field.Number(), protowire.BytesType), w.sized(w.message(field.Message(), depth+1))...)
		case field.Kind() == protoreflect.StringKind:
			b = append(w.tag(b, field.Number(), protowire.BytesType), w.sized(w.text())...)
		case field.Kind() != protoreflect.MessageKind:
			b = w.varint(w.tag(b, field.Number(), protowire.VarintType), w.number())
		}
	}
	return b
}

// unknown is a field that the message does not have under this number. No field of
// ours is a group or a fixed number of bytes.
func (w *oddWriter) unknown(b []byte, n protowire.Number, depth int) []byte {
	switch kind := w.byte() % 4; {
	case kind == 0:
		return append(w.tag(b, n, protowire.Fixed32Type), "1234"...)
	case kind == 1:
		return append(w.tag(b, n, protowire.Fixed64Type), "12345678"...)
	case kind == 2 && n >= 100:
		return append(w.tag(b, n, protowire.BytesType), w.sized(w.text())...)
	case depth > 3:
		return b
	}
	b = w.tag(b, n, protowire.StartGroupType)
	for range w.byte() % 3 {
		b = w.unknown(b, 1+protowire.Number(w.byte()), depth+1)
	}
	return w.tag(b, n, protowire.EndGroupType)
}

func (w *oddWriter) text() []byte {
	n := min(int(w.byte()%8), len(w.script))
	text := w.script[:n]
	w.script = w.script[n:]
	return text
}

func (w *oddWriter) number() uint64 {
	switch n := w.byte(); {
	case n < 100:
		return uint64(n % 10)
	case n < 150:
		return 1<<(n%64) - 1
	default:
		var all [8]byte
		for i := range all {
			all[i] = w.byte()
		}
		return binary.LittleEndian.Uint64(all[:])
	}
}

func (w *oddWriter) tag(b []byte, n protowire.Number, kind protowire.Type) []byte {
	return w.varint(b, protowire.EncodeTag(n, kind))
}

// varint may take more bytes than it needs, up to ten.
func (w *oddWriter) varint(b []byte, n uint64) []byte {
	start := len(b)
	b = protowire.AppendVarint(b, n)
	if more := w.byte(); more > 200 {
		for range min(int(more-200)%10, 10-(len(b)-start)) {
			b[len(b)-1] |= 0x80
			b = append(b, 0)
		}
	}
	return b
}

func (w *oddWriter) sized(inner []byte) []byte {
	return append(w.varint(nil, uint64(len(inner))), inner...)
}
