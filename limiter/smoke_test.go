package limiter
import ("testing";"context";"fmt")
func BenchmarkDecide(b *testing.B){
 for _,a:=range []Algorithm{0,1,2,3,4}{ b.Run(a.String(),func(b *testing.B){
  m:=NewMemory(MemoryOptions{})
  l:=Limit{Requests:100000,Window:Window{Length:3600e9},Algorithm:a}
  if a==TokenBucket{l.Burst=100000}
  if a==LeakyBucket{l.Queue=100000}
  if err:=l.Validate();err!=nil{b.Fatal(err)}
  hits:=[]Hit{{Limit:l,Cost:1,MaxDelay:NoDeadline}}
  keys:=make([]Key,10000); for i:=range keys{keys[i]=Key(fmt.Sprintf("0123456789abcdef%d",i))}
  b.ReportAllocs()
  i:=0
  for b.Loop(){ hits[0].Key=keys[i%10000];i++; d,err:=m.Decide(context.Background(),hits); if err!=nil||!d[0].Allowed&&a==0{b.Fatal(d,err)} }
 })}
}
