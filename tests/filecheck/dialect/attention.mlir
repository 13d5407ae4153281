// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%q: tensor<?x?x12xf32>, %k: tensor<?x?x6xf32>, %v: tensor<?x?x8xf32>, %m: tensor<?x1x1x?xf32>, %pk: tensor<?x3x?x4xf32>) {
  %plain = pebble.attention %q, %q, %q heads 3 kv_heads 3 scale 5.0e-01 : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
  %grouped = pebble.attention %q, %k, %v mask %m heads 4 kv_heads 2 scale 1.0 : (tensor<?x?x12xf32>, tensor<?x?x6xf32>, tensor<?x?x8xf32>, tensor<?x1x1x?xf32>) -> tensor<?x?x16xf32>
  %causal = pebble.attention %q, %q, %q heads 1 kv_heads 1 scale 1.0 causal nan_as_zero : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
  %past = pebble.past_attention %q, %q, %q mask %m past %pk, %pk heads 3 kv_heads 3 scale 1.0 : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x1x1x?xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>) -> tensor<?x?x12xf32>
  %rounded = pebble.attention %q, %q, %q mask %m heads 3 kv_heads 3 scale 1.0 nan_as_zero products [#pebble.activation<quantize(0.5, 3.0)>, #pebble.activation<quantize(1.0, 0.0)>] scores [#pebble.activation<quantize(2.0, 9.0)>] weights [#pebble.activation<quantize(0.25, 0.0)>] : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x1x1x?xf32>) -> tensor<?x?x12xf32>
  func.return
}

// CHECK:      %plain = pebble.attention %q, %q, %q heads 3 kv_heads 3 scale 5.000000e-01 : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
// CHECK-NEXT: %grouped = pebble.attention %q, %k, %v mask %m heads 4 kv_heads 2 scale 1.000000e+00 : (tensor<?x?x12xf32>, tensor<?x?x6xf32>, tensor<?x?x8xf32>, tensor<?x1x1x?xf32>) -> tensor<?x?x16xf32>
// CHECK-NEXT: %causal = pebble.attention %q, %q, %q heads 1 kv_heads 1 scale 1.000000e+00 causal nan_as_zero : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
// CHECK-NEXT: %past = pebble.past_attention %q, %q, %q mask %m past %pk, %pk heads 3 kv_heads 3 scale 1.000000e+00 : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x1x1x?xf32>, tensor<?x3x?x4xf32>, tensor<?x3x?x4xf32>) -> tensor<?x?x12xf32>
// CHECK-NEXT: %rounded = pebble.attention %q, %q, %q mask %m heads 3 kv_heads 3 scale 1.000000e+00 nan_as_zero products [#pebble.activation<quantize(0.5, 3.0)>, #pebble.activation<quantize(1.0, 0.0)>] scores [#pebble.activation<quantize(2.0, 9.0)>] weights [#pebble.activation<quantize(0.25, 0.0)>] : (tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x?x12xf32>, tensor<?x1x1x?xf32>) -> tensor<?x?x12xf32>

// GENERIC: %causal = "pebble.attention"(%q, %q, %q) <{heads = 1 : i64, kv_heads = 1 : i64, scale = 1.000000e+00 : f64, causal, nan_as_zero}>
