// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected queries of rank 3 and a multiple of 2 features, got ?x4
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x?x4xf32>) {
  // CHECK: expected positive numbers of heads, a multiple of those of keys, got 3 and 2
  %y = pebble.attention %x, %x, %x heads 3 kv_heads 2 scale 1.0 : (tensor<2x?x4xf32>, tensor<2x?x4xf32>, tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x?x4xf32>, %k: tensor<2x?x6xf32>) {
  // CHECK: queries have 2 features a head, keys 3
  %y = pebble.attention %x, %k, %k heads 2 kv_heads 2 scale 1.0 : (tensor<2x?x4xf32>, tensor<2x?x6xf32>, tensor<2x?x6xf32>) -> tensor<2x?x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x?x4xf32>, %k: tensor<3x?x4xf32>) {
  // CHECK: expected the same number of samples, got 2 and 3
  %y = pebble.attention %x, %k, %k heads 2 kv_heads 2 scale 1.0 : (tensor<2x?x4xf32>, tensor<3x?x4xf32>, tensor<3x?x4xf32>) -> tensor<2x?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %v: tensor<2x6x4xf32>) {
  // CHECK: expected the same number of keys, got 5 and 6
  %y = pebble.attention %x, %x, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x6x4xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %m: tensor<2x3x5x5xf32>) {
  // CHECK: expected a mask that is broadcast to 2x2x5x5, got 2x3x5x5
  %y = pebble.attention %x, %x, %x mask %m heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x3x5x5xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>) {
  // CHECK: expected result 2x5x4, got 2x5x2
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<3x2x?x2xf32>, %v: tensor<2x2x?x2xf32>) {
  // CHECK: expected past 2x2x?x2, got 3x2x?x2
  %y = pebble.past_attention %x, %x, %x past %k, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<3x2x?x2xf32>, tensor<2x2x?x2xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<2x2x?x2xf32>, %v: tensor<2x2x?x3xf32>) {
  // CHECK: expected past 2x2x?x2, got 2x2x?x3
  %y = pebble.past_attention %x, %x, %x past %k, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x2x?x2xf32>, tensor<2x2x?x3xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<2x2x6x2xf32>, %v: tensor<2x2x7x2xf32>) {
  // CHECK: expected as many keys as values of the past, got 6 and 7
  %y = pebble.past_attention %x, %x, %x past %k, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x2x6x2xf32>, tensor<2x2x7x2xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<2x2x6x2xf32>, %m: tensor<2x1x5x5xf32>) {
  // CHECK: expected a mask that is broadcast to 2x2x5x11, got 2x1x5x5
  %y = pebble.past_attention %x, %x, %x mask %m past %k, %k heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x1x5x5xf32>, tensor<2x2x6x2xf32>, tensor<2x2x6x2xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>) {
  // CHECK: expected a rounding by quantize, got relu
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 weights [#pebble.activation<relu>] : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>) {
  // CHECK: expected roundings of the products alone of causal scores, got roundings of scores
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 causal scores [#pebble.activation<quantize(2.0, 9.0)>] : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  func.return
}
