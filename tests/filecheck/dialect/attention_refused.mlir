// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: queries ?x4, expected rank 3 and a multiple of 2 features
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x?x4xf32>) {
  // CHECK: 3 heads and 2 of keys, expected positive numbers and a multiple
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
  // CHECK: 2 and 3 samples, expected the same number
  %y = pebble.attention %x, %k, %k heads 2 kv_heads 2 scale 1.0 : (tensor<2x?x4xf32>, tensor<3x?x4xf32>, tensor<3x?x4xf32>) -> tensor<2x?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %v: tensor<2x6x4xf32>) {
  // CHECK: 5 and 6 keys, expected the same number
  %y = pebble.attention %x, %x, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x6x4xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %m: tensor<2x3x5x5xf32>) {
  // CHECK: mask 2x3x5x5, expected one that is broadcast to 2x2x5x5
  %y = pebble.attention %x, %x, %x mask %m heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x3x5x5xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>) {
  // CHECK: result 2x5x2, expected 2x5x4
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<3x2x?x2xf32>, %v: tensor<2x2x?x2xf32>) {
  // CHECK: past 3x2x?x2, expected 2x2x?x2
  %y = pebble.past_attention %x, %x, %x past %k, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<3x2x?x2xf32>, tensor<2x2x?x2xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<2x2x?x2xf32>, %v: tensor<2x2x?x3xf32>) {
  // CHECK: past 2x2x?x3, expected 2x2x?x2
  %y = pebble.past_attention %x, %x, %x past %k, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x2x?x2xf32>, tensor<2x2x?x3xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<2x2x6x2xf32>, %v: tensor<2x2x7x2xf32>) {
  // CHECK: 6 keys and 7 values of the past, expected as many
  %y = pebble.past_attention %x, %x, %x past %k, %v heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x2x6x2xf32>, tensor<2x2x7x2xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>, %k: tensor<2x2x6x2xf32>, %m: tensor<2x1x5x5xf32>) {
  // CHECK: mask 2x1x5x5, expected one that is broadcast to 2x2x5x11
  %y = pebble.past_attention %x, %x, %x mask %m past %k, %k heads 2 kv_heads 2 scale 1.0 : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x1x5x5xf32>, tensor<2x2x6x2xf32>, tensor<2x2x6x2xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>) {
  // CHECK: rounded by relu, expected quantize
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 weights [#pebble.activation<relu>] : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x5x4xf32>) {
  // CHECK: causal scores are rounded, expected roundings of the products alone
  %y = pebble.attention %x, %x, %x heads 2 kv_heads 2 scale 1.0 causal scores [#pebble.activation<quantize(2.0, 9.0)>] : (tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  func.return
}
